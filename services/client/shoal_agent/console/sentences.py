"""Says in plain words what a job asks, what it costs, and what an owner's rules allow."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import Any, Final

from shoal_agent.status import AskingView, HolderStatus, Left, Parties, PartyView
from shoal_holder.crowds.status import CrowdStatus, is_cheating
from shoal_holder.isolation import NO_NETWORK, NO_SOCKETS
from shoal_holder.jobs import WITHDRAWN
from shoal_holder.policy import Policy
from shoal_holder.state import LEFT
from shoal_holder.status import JobStatus, RoundStatus
from shoal_hosting.outcome import ACKNOWLEDGED, LOST, PENDING
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.declarations import read_ranges
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.privacy.job_costs import epsilon_at, gaussian_epsilon
from shoal_protocol.queries import QueryName
from shoal_protocol.sharing.schemes import Sharing

MEASURED: Final[dict[QueryName, str]] = {
    "counts": "counts of values",
    "bin_counts": "counts over bins",
    "tables": "counts in tables",
    "first_moments": "means of the columns",
    "second_moments": "spreads of the columns",
    "norm_counts": "norms of the rows",
    "second_moment_matrix": "moments of the columns",
    "weighted_row_matrix": "moments of the rows, weighted",
    "column_moments": "means and spreads of the columns",
    "score_sum": "scores",
    "hazard_score_sum": "events, hazards and scores",
    "prediction_scores": "scores of predictions",
    "class_score_sum": "scores of each class",
    "gradient_sum": "gradients",
    "vector_sum": "sums of a vector",
}
"""What a round of that query measures."""

Request = JobRequest | CrowdJobRequest
Facts = Iterator[tuple[str, str]]
Answers = Iterator[tuple[str, str | list[str]]]
Described = dict[str, Any]
"""Facts and tables by their names, which the command prints as text and the console as a page."""


def price(cap: Cap) -> str:
    """Say a price as in "ε = 1 at δ = 1e-06"."""
    return f"ε = {cap.epsilon:g}" + ("" if cap.is_pure else f" at δ = {cap.delta:g}")


def in_epsilon(mu: float, epsilon: float | None, cap: Cap) -> float:
    """Return what a charge costs as an epsilon at the cap's delta; `epsilon` None is infinite."""
    return epsilon_at(cap.delta, Cost.stated(mu, epsilon))


def guess(cap: Cap) -> str:
    """Say what a price means for one record, in the worst case.

    The chance to tell two equally likely records apart is at most 1 / (1 + e^-ε), and by Gaussian
    noise with the parameter µ at most Φ(µ/2) (Dong, Roth and Su 2022, arXiv:1905.02383).
    """
    pure = 1.0 / (1.0 + math.exp(-cap.epsilon))
    cases = math.ceil(100.0 * (pure if cap.is_pure else NormalDist().cdf(cap.mu / 2.0)) - 1e-9)
    return (
        "Whoever knows all other records, and finds two versions of this one equally likely, "
        f"would pick the true one in at most {cases} of 100 cases; without the job in 50."
    )


def moment(at: datetime | str) -> str:
    """Say a time, given as such or as documents have it."""
    return f"{second(at)} UTC"


def second(at: datetime | str) -> str:
    """Say a time under a heading that names its zone."""
    return f"{datetime.fromisoformat(at) if isinstance(at, str) else at:%Y-%m-%d %H:%M:%S}"


def to_go(at: datetime, *, now: datetime) -> str:
    """Say how far ahead a time is."""
    left = at - now
    if left <= timedelta(0):
        return "over"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if left.total_seconds() >= 2 * size:
            return f"in {left.total_seconds() // size:.0f} {unit}"
    return f"in {left.total_seconds():.0f} seconds"


def ahead(at: datetime | str, *, now: datetime) -> str:
    """Say a time, given as such or as documents have it, and how far ahead it is."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{moment(at)} ({to_go(at, now=now)})"


def party(of: PartyView) -> str:
    """Name a party and the organisation that runs it."""
    return f"{of.name} ({of.operator})"


def cost(request: Request) -> Cap:
    """Return what all of a job may cost one record."""
    if isinstance(request, CrowdJobRequest):
        return Cap(epsilon=request.record_epsilon, delta=0.0)
    return request.privacy.cap


def left_after(request: Request, left: Left, cap: Cap) -> str:
    """Say what a job would leave to the record that has least left, of the owner's cap.

    Squares of µ add up, and so does a pure epsilon.
    """
    now = left.pure if cap.is_pure else left.gaussian
    if isinstance(request, CrowdJobRequest):
        return (
            f"A client may spend ε = {request.client_epsilon:g} of its budget on it, and nothing "
            "beyond the policy’s cap."
        )
    price_of = request.privacy.cap
    if now <= 0.0:
        return "Nothing is left to the record that has least."
    before = Cap(epsilon=now, delta=cap.delta)
    if not before.allows(price_of.whole):
        return (
            f"The record that has least has {price(before)} left, which is not enough: records "
            "that cannot pay take no part."
        )
    after = now - price_of.epsilon
    if not cap.is_pure:
        mu = math.sqrt(max(0.0, before.mu**2 - price_of.whole.mu**2))
        after = gaussian_epsilon(mu=mu, delta=cap.delta)
    return f"To the record that has least, ε = {max(0.0, after):.3g} of {now:.3g} that it has now."


def title(request: Request) -> str:
    """Return a job's purpose, or else what it asks."""
    if isinstance(request, CrowdJobRequest):
        names = request.task.column_names
        return f"A crowd’s {request.task.family} regression of {', '.join(names[:4])}"
    if request.purpose:
        return request.purpose
    names = request.terms.column_names
    more = " and others" if len(names) > 4 else ""
    return f"{MEASURED[request.terms.query_names[0]]}: {', '.join(names[:4])}{more}".capitalize()


def variables(request: Request) -> list[str]:
    """Name each variable that a job reads, with the bounds to which its values are cut."""
    ends: dict[str, tuple[float, float]] = {}
    read = request.terms.read if isinstance(request, JobRequest) else request.task.columns
    for name, lower, upper in read_ranges(read):
        least, most = ends.get(name, (lower, upper))
        ends[name] = min(least, lower), max(most, upper)
    return [
        f"{name}, between {lower:g} and {upper:g}" if lower < upper else f"{name}, one level of it"
        for name, (lower, upper) in ends.items()
    ]


def asked(request: Request, parties: Parties, *, now: datetime, left: str | None = None) -> Answers:
    """Yield who asks what, of whom and how often, until when, at what price, and who gets it.

    `left` says what it would leave.
    """
    yield "Who asks", party(parties.analyst)
    if isinstance(request, CrowdJobRequest):
        yield "Variables", variables(request)
        yield from _asked_of_crowd(request, now=now, left=left)
        yield "Who gets what leaves here", f"{party(parties.trainer)}, which sees each contribution"
        return
    yield "What for", request.purpose or "The request does not say."
    yield "Variables", variables(request)
    yield from _asked_in_rounds(request, now=now, left=left)
    yield (
        "Who gets what leaves here",
        [
            f"{party(parties.trainer)}: that you take part",
            *(f"{party(each)}: one sealed part of each answer" for each in parties.compute_nodes),
        ],
    )


def _asked_of_crowd(request: CrowdJobRequest, *, now: datetime, left: str | None) -> Facts:
    task = request.task
    yield "What is sent", f"noised steps of a {task.family} regression, each on one record"
    yield (
        "How often",
        f"At most {_count(request.contributions_per_client, 'contribution')} of a client, "
        f"{request.contributions_per_record:,} with one of its records.",
    )
    yield "Of how many", f"{_count(request.contributions, 'contribution')} of all data holders"
    yield (
        "Cost to each record",
        f"{price(cost(request))} at most; ε = {task.contribution_epsilon:g} for each contribution",
    )
    yield "In plain words", guess(cost(request))
    if left is not None:
        yield "What would be left", left
    yield "Until", f"The job closes {ahead(request.closes_at, now=now)} at the latest."


def _asked_in_rounds(request: JobRequest, *, now: datetime, left: str | None) -> Facts:
    terms, privacy = request.terms, request.privacy
    kinds = [
        f"{MEASURED[each.query.name]}, {_count(each.rounds, 'round')}"
        for each in terms.kinds  # in their order
    ]
    yield "What is added up", "; ".join(kinds)
    who = "all who joined" if terms.batch is None else f"{terms.batch:,} of those who joined"
    yield "How often", f"At most {_count(terms.rounds, 'round')}; each asks {who}."
    least, most = request.minimum_population, request.maximum_population
    many = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    yield "Of how many", f"{many} clients, of all data holders together"
    yield "Cost to each record", f"{price(privacy.cap)}, all rounds together"
    yield "In plain words", guess(privacy.cap)
    if left is not None:
        yield "What would be left", left
    yield (
        "This holds while",
        f"at most {privacy.dropouts:,} clients of a round are missing and {privacy.colluders:,} "
        f"tell others their noise, and {_closed(request.sharing)}",
    )
    yield (
        "Until",
        f"Joining closes {ahead(request.join_deadline, now=now)}; all is over by "
        f"{ahead(request.ends_by, now=now)}.",
    )


def _closed(sharing: Sharing) -> str:
    """Say what keeps one data holder's part of a sum closed."""
    nodes = "Compute nodes"
    if sharing.committee is not None:
        nodes = f"{sharing.committee} Compute nodes that get a data holder's parts"
    if sharing.scheme == "additive":
        return f"not all {nodes} are in league"
    return f"fewer than {sharing.threshold} of the {nodes} are in league"


def decisions(asking: AskingView) -> list[str]:
    """Say who decided what about a job, and how many owners must approve it."""
    needed = {1: "One owner must approve it.", 2: "Two owners must approve it."}
    said = [
        f"{each.owner} {'approved' if each.decision == 'approve' else 'refused'} it "
        f"{moment(each.decided_at)}"
        for each in asking.decisions
    ]
    if asking.needed not in needed:
        return ["No owner is asked now.", *said]
    return [needed[asking.needed], *(said or ["Nobody has decided yet."])]


def stage(asking: AskingView) -> tuple[str, str]:
    """Say how far owners are with a job, and how good that is, as style.css names it."""
    return {
        "waits": ("It waits for a decision.", "waits"),
        "approved": ("It is approved.", "holds"),
        "refused": ("It is refused, for good.", "fails"),
        "expired": ("Its time is over: nobody decided.", "fails"),
    }[asking.stage]


def standing(job: JobStatus) -> tuple[str, str]:
    """Say how a job stands here, and whether that is good, open or bad, as style.css names it."""
    if job.ended == LEFT:
        told = "" if job.leave == ACKNOWLEDGED else "; the trainer is not told yet"
        return f"you left it{told}", "fails"
    if job.ended == WITHDRAWN:
        return "cancelled by its analyst", "fails"
    if job.ended is not None:
        return f"over ({job.ended.removeprefix('job-').replace('-', ' ')})", "holds"
    if job.join == PENDING:
        return "joined here; the trainer is not told yet", "waits"
    if job.join != ACKNOWLEDGED:
        return f"the trainer refused the join ({job.join})", "fails"
    return "taking part", "waits"


def told(outcome: str | None) -> str:
    """Say whether the trainer was told something."""
    if outcome is None:
        return "no"
    words = {ACKNOWLEDGED: "yes", PENDING: "not yet: it does not answer"}
    return words.get(outcome, f"yes, and it refused ({outcome})")


def sent(a_round: RoundStatus) -> tuple[str, str]:
    """Say how far an answer's envelopes came, and how good that is, as style.css names it."""
    if not a_round.envelopes:  # of a state that was lost since
        return "charged because Compute nodes have it; what was sent is not on file", "waits"
    total, counts = sum(a_round.envelopes.values()), dict(a_round.envelopes)
    got = counts.pop(ACKNOWLEDGED, 0)
    if got == total:
        return f"all {total:,} Compute nodes have it", "holds"
    words = {PENDING: "not yet", LOST: "lost there"}
    others = [f"{count:,} {words.get(code, code)}" for code, count in counts.items()]
    over = "" if a_round.ended is None else f" ({a_round.ended})"
    return f"{got:,} of {total:,} have it; {', '.join(others)}{over}", "waits"


def troubles(status: HolderStatus) -> Iterator[str]:
    """Yield what needs the owner, and what to do."""
    if status.refusal is not None:
        yield f"Nothing is joined or answered: {status.refusal}"
    elif status.enrolled == 0:
        yield (
            "No slot is enrolled: hand the key's enrolment file to the consortium's authority, "
            "which publishes the new manifest."
        )
    for party, reason in status.unheard.items():
        yield f"{party} did not answer when it was asked last: {reason}"
    if status.records_fault is not None:
        yield f"The newest records are not in use: {status.records_fault}"
    if status.backup_due:
        yield "A backup is due: `shoal agent backup` writes one."
    if cheats := sum(is_cheating(each.verdict) for each in status.crowds):
        yield (
            f"The trainer did not keep to its word in {_count(cheats, 'crowd job')}: tell the "
            "other parties. Your agent keeps what the trainer signed."
        )


def health(status: HolderStatus) -> Facts:
    """Yield how the agent stands, beside what needs the owner."""
    yield "Enrolled", f"{status.enrolled:,} slots"
    yield "Stopped", status.refusal or "no"
    yield "Key", f"{status.key} is its fingerprint, by which the authority knows you"
    isolated = {NO_SOCKETS: "It can make no socket.", NO_NETWORK: "It has no network."}
    yield (
        "Process with records and key",
        isolated.get(status.isolation, "This system does not cut it off from the network."),
    )
    backup = "none yet" if status.backup_at is None else moment(status.backup_at)
    yield "Last backup", backup + ("; one is due" if status.backup_due else "")
    yield "Records", status.records_fault or "the newest are in use"
    if status.adopted:
        yield "Taken over", f"{_count(status.adopted, 'round')} that Compute nodes had charged"
    if status.losses:
        yield "Accepted losses", f"{status.losses:,}, whose charges may be spent a second time"


def described(status: HolderStatus) -> Described:
    """Describe what needs the owner, how an agent stands, and in counts what it did so far."""
    counted = Counter(status.refused_crowds.values()).most_common()
    return {
        "Action needed": " ".join(troubles(status)) or "No action needed.",
        **dict(health(status)),
        "Jobs that wait for approval": [{"job": job} for job in status.waiting],
        "Jobs": [_job(each) for each in status.jobs],
        "Crowd jobs": crowds(status.crowds),
        "Refused jobs": [{"job": job, "reason": why} for job, why in status.refused.items()],
        "Open crowd jobs not contributed to": [
            {"jobs": f"{count:,}", "reason": reason} for reason, count in counted
        ],
    }


def _job(job: JobStatus) -> dict[str, str]:
    answered = [each.answers for each in job.rounds if each.answers]
    return {
        "job": job.job,
        "slots": f"{job.slots:,}",
        "here": standing(job)[0],
        "rounds answered": f"{len(answered):,}",
        "answers": f"{sum(answered):,}",
    }


def crowds(several: Iterable[CrowdStatus]) -> list[dict[str, str]]:
    """Describe what was done in crowd jobs, a row for each."""
    return [
        {
            "job": each.job,
            "contributions": ", ".join(
                f"{count:,} {outcome}" for outcome, count in each.contributions.items()
            ),
            "ended": each.ended or "no",
            "what the trainer signed": _verdict(each),
        }
        for each in several
    ]


def _verdict(crowd: CrowdStatus) -> str:
    if crowd.verdict is not None:
        return crowd.verdict
    if crowd.ended is not None and not crowd.contributions:
        return "nothing was sent, so there is nothing to compare"
    if crowd.is_closed:
        return "its closing is kept and not compared yet: the logs are still to be read"
    return "the job has shown no closing"


def rules(policy: Policy) -> Facts:
    """Yield what an owner's rules allow."""
    ranges = {each.name: f" between {each.lower:g} and {each.upper:g}" for each in policy.ranges}
    yield "Who may ask", _list(policy.analysts)
    yield "About which variables", _list(name + ranges.get(name, "") for name in policy.columns)
    yield "What may be added up", _list(MEASURED[each] for each in policy.queries)
    yield "Cost to each record", f"{price(policy.cap)} at most, all jobs together, ever"
    yield "In plain words", guess(policy.cap).replace("without the job", "without any")
    yield "Of how many", f"at least {policy.minimum_population:,} clients in each round"
    yield (
        "Who may collude",
        f"{policy.minimum_colluders:,} clients at least, without the cost rising",
    )
    nodes = "all Compute nodes together"
    if policy.minimum_threshold is not None:
        nodes = f"at least {policy.minimum_threshold} Compute nodes together"
    if policy.minimum_committee is not None:
        nodes += f", in committees of {policy.minimum_committee} or more"
    yield "Who can open an answer", nodes
    needed = {"automatic": "Nobody is asked.", "one": "One owner", "two": "Two owners"}
    yield (
        "Who approves a job",
        needed[policy.approval]
        + ("" if policy.approval == "automatic" else f" of: {_list(policy.owners)}"),
    )
    yield "Noise", _list(policy.mechanisms or (policy.cap.mechanism,))
    if "tables" in policy.queries:
        yield "Smallest cell of a table", f"{policy.smallest_cell:,} records"
    if policy.models:
        yield "Models of NumPyro", _list(policy.models)
    if policy.maximum_local_epsilon is not None:
        yield (
            "Crowd jobs",
            f"{_list(policy.crowd_families)}; ε = {policy.maximum_local_epsilon:g} at most for "
            "each record, all crowd jobs together",
        )
    ahead = [f"{each / 86_400:.3g} days" for each in _reach(policy)]
    yield "How far ahead", f"time to join {ahead[0]}, a job's end {ahead[1]}"
    told = "nothing" if not policy.declare else "these rules and the columns' names"
    yield "What analysts are told", told + (", with the cap" if policy.declare_cap else "")


def _reach(policy: Policy) -> tuple[int, int]:
    return policy.maximum_join_seconds, policy.maximum_job_seconds


def _list(names: Iterable[str]) -> str:
    return ", ".join(each.replace("_", " ") for each in names) or "nothing"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
