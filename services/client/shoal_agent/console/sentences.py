"""Says in plain words what a job asks, what it costs, and what an owner's rules allow."""

import math
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import Any, Final

from shoal_agent.status import AskingView, HolderStatus, Left, Parties
from shoal_holder.crowds.status import CrowdStatus, is_cheating
from shoal_holder.isolation import NO_NETWORK, NO_SOCKETS
from shoal_holder.policy import Policy
from shoal_holder.state import LEFT
from shoal_holder.status import JobStatus, RoundStatus
from shoal_kit.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.declarations import read_ranges
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.privacy.job_costs import PrivacySpent, epsilon_at, gaussian_epsilon
from shoal_protocol.queries import QueryName
from shoal_protocol.sharing.schemes import Sharing

MEASURED: Final[dict[QueryName, str]] = {
    "counts": "counts of values",
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
Facts = dict[str, str]
Described = dict[str, Any]
"""Facts and tables by their names, which the command prints as text and the console as a page."""


def price(cap: Cap) -> str:
    """Say a price as in "ε = 1 at δ = 1e-06"."""
    return f"ε = {cap.epsilon:g}" + ("" if cap.is_pure else f" at δ = {cap.delta:g}")


def in_epsilon(charge: Any, delta: float) -> float:
    """Return what a charge, or a reservation, costs as an epsilon at the delta of the cap."""
    return epsilon_at(delta, Cost.stated(charge.mu, charge.epsilon))


def chance(of: Cap | PrivacySpent) -> float:
    """Return the most that a guess between two equally likely versions of a record is right.

    Whoever guesses sees everything that `of` is the price of. For pure epsilon it is
    1 / (1 + e^-ε), for Gaussian noise with the parameter µ Φ(µ/2) (Dong, Roth and Su 2022,
    arXiv:1905.02383).
    """
    return NormalDist().cdf(of.mu / 2.0) if of.delta else 1.0 / (1.0 + math.exp(-of.epsilon))


def guess(cap: Cap) -> str:
    """Say what a price means for one record, in the worst case."""
    cases = math.ceil(100.0 * chance(cap) - 1e-9)
    return (
        "Whoever knows all other records, and finds two versions of this one equally likely, "
        f"would pick the true one in at most {cases} of 100 cases; without the job in 50."
    )


def moment(at: datetime | str) -> str:
    """Return a time, or a document's timestamp, as text with its zone."""
    return f"{second(at)} UTC"


def second(at: datetime | str) -> str:
    """Return a time, or a document's timestamp, as text without its zone."""
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
    """Return a time, or a document's timestamp, as text, and how far ahead it is."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{moment(at)} ({to_go(at, now=now)})"


def cost(request: Request) -> Cap:
    """Return what all of a job may cost one record."""
    if isinstance(request, CrowdJobRequest):
        return Cap(epsilon=request.client_epsilon, delta=0.0)
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
        return "The record with the least budget has nothing left."
    before = Cap(epsilon=now, delta=cap.delta)
    if not before.allows(price_of.whole):
        return (
            f"The record with the least budget has {price(before)} left, which is too little: "
            "records that cannot pay take no part."
        )
    after = now - price_of.epsilon
    if not cap.is_pure:
        mu = math.sqrt(max(0.0, before.mu**2 - price_of.whole.mu**2))
        after = gaussian_epsilon(mu=mu, delta=cap.delta)
    return f"The record with the least budget keeps ε = {max(0.0, after):.3g} of its {now:.3g}."


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


def asked(
    request: Request, parties: Parties, *, now: datetime, left: str | None = None
) -> dict[str, str | list[str]]:
    """Describe a job to an owner: who asks, what for, what is read, at what price, who gets it.

    `left` is what `left_after` returns, if the owner is to decide.
    """
    taken = {} if left is None else {"What would be left": left}
    if isinstance(request, CrowdJobRequest):
        return {
            "Who asks": parties.analyst,
            "Variables": variables(request),
            **_asked_of_crowd(request, now=now, taken=taken),
            "Who gets what leaves here": (f"{parties.trainer}, which sees each contribution"),
        }
    return {
        "Who asks": parties.analyst,
        "What for": request.purpose or "The request does not say.",
        "Variables": variables(request),
        **_asked_in_rounds(request, now=now, taken=taken),
        "Who gets what leaves here": [
            f"{parties.trainer}: that you take part",
            *(f"{each}: one sealed part of each answer" for each in parties.compute_nodes),
        ],
    }


def _asked_of_crowd(request: CrowdJobRequest, *, now: datetime, taken: Facts) -> Facts:
    task = request.task
    return {
        "What is sent": f"noised steps of a {task.family} regression, each on "
        f"{_count(task.records_per_client, 'record')} of a client at most",
        "How often": f"At most {_count(request.contributions_per_client, 'contribution')} of a "
        "client",
        "Of how many": f"{_count(request.contributions, 'contribution')} of all data holders",
        "Cost to each record": f"{price(cost(request))} at most; "
        f"ε = {task.contribution_epsilon:g} for each contribution",
        "In plain words": guess(cost(request)),
        **taken,
        "Until": f"The job closes {ahead(request.closes_at, now=now)} at the latest.",
    }


def _asked_in_rounds(request: JobRequest, *, now: datetime, taken: Facts) -> Facts:
    terms, privacy = request.terms, request.privacy
    who = "all who joined" if terms.batch is None else f"{terms.batch:,} of those who joined"
    least, most = request.minimum_population, request.maximum_population
    many = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return {
        "What is added up": "; ".join(
            f"{MEASURED[each.query.name]}, {_count(each.rounds, 'round')}" for each in terms.kinds
        ),
        "How often": f"At most {_count(terms.rounds, 'round')}; each asks {who}.",
        "Of how many": f"{many} clients, of all data holders together",
        "Cost to each record": f"{price(privacy.cap)}, all rounds together",
        "In plain words": guess(privacy.cap),
        **taken,
        "This holds while": f"at most {privacy.dropouts:,} clients of a round are missing and "
        f"{privacy.colluders:,} tell others their noise, and {_closed(request.sharing)}",
        "Until": f"Joining closes {ahead(request.join_deadline, now=now)}; the job ends by "
        f"{ahead(request.ends_by, now=now)}.",
    }


def _closed(sharing: Sharing) -> str:
    """Say under which condition nobody can open one data holder's part of a sum."""
    nodes = "Compute nodes"
    if sharing.committee is not None:
        nodes = f"{sharing.committee} Compute nodes that get a data holder's parts"
    if sharing.scheme == "additive":
        return f"not all {nodes} collude"
    return f"fewer than {sharing.threshold} of the {nodes} collude"


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
    """Return the stage of the owners' decision as a sentence, and its class in style.css."""
    return {
        "waits": ("It waits for a decision.", "waits"),
        "approved": ("It is approved.", "holds"),
        "refused": ("It is refused, for good.", "fails"),
        "expired": ("It expired: nobody decided in time.", "fails"),
    }[asking.stage]


def standing(job: JobStatus) -> tuple[str, str]:
    """Return a job's state at this data holder in words, and its class in style.css."""
    if job.ended == LEFT:
        told = "" if job.leave == ACKNOWLEDGED else "; the trainer is not told yet"
        return f"you left it{told}", "fails"
    if job.ended is not None:
        return f"over ({job.ended.removeprefix('job-').replace('-', ' ')})", "holds"
    if job.join == PENDING:
        return "joined here; the trainer is not told yet", "waits"
    if job.join != ACKNOWLEDGED:
        return f"the trainer refused the join ({job.join})", "fails"
    return "taking part", "waits"


def sent(a_round: RoundStatus) -> tuple[str, str]:
    """Say which Compute nodes have an answer's envelopes, and return the class in style.css."""
    if not a_round.envelopes:  # the state that had them was lost
        return "charged because Compute nodes have it; what was sent is not on file", "waits"
    total, counts = sum(a_round.envelopes.values()), dict(a_round.envelopes)
    got = counts.pop(ACKNOWLEDGED, 0)
    if got == total:
        return f"all {total:,} Compute nodes have it", "holds"
    others = [
        f"{count:,} {'not yet' if code == PENDING else code}" for code, count in counts.items()
    ]
    over = "" if a_round.ended is None else f" ({a_round.ended})"
    return f"{got:,} of {total:,} have it; {', '.join(others)}{over}", "waits"


def troubles(status: HolderStatus) -> list[str]:
    """Return what the owner must act on, and how."""
    cheats = sum(is_cheating(each.verdict) for each in status.crowds)
    said = {
        f"The agent joins and answers nothing: {status.refusal}": status.refusal is not None,
        "No slot is enrolled: hand the key's enrolment file to the consortium's authority, which "
        "publishes the new manifest.": status.refusal is None and status.enrolled == 0,
        **{
            f"{party} did not answer the last request: {reason}": True
            for party, reason in status.unheard.items()
        },
        "A backup is due: `shoal agent backup` writes one.": status.backup_due,
        f"The trainer did not keep to its word in {_count(cheats, 'crowd job')}: tell the other "
        "parties. Your agent keeps what the trainer signed.": cheats > 0,
    }
    return [sentence for sentence, is_so in said.items() if is_so]


def health(status: HolderStatus) -> Facts:
    """Describe the agent's state, beside what the owner must act on."""
    isolated = {NO_SOCKETS: "It can make no socket.", NO_NETWORK: "It has no network."}
    backup = "none yet" if status.backup_at is None else moment(status.backup_at)
    return {
        "Enrolled": f"{status.enrolled:,} slots",
        "Stopped": status.refusal or "no",
        "Key": f"fingerprint {status.key}, by which the authority knows you",
        "Process with records and key": isolated.get(
            status.isolation, "This system cannot cut it off from the network."
        ),
        "Last backup": backup + ("; one is due" if status.backup_due else ""),
    }


def described(status: HolderStatus) -> Described:
    """Describe an agent: what the owner must act on, its state, and its jobs in counts."""
    counted = Counter(status.refused_crowds.values()).most_common()
    return {
        "Action needed": "\n".join(troubles(status)) or "No action needed.",
        **health(status),
        "Jobs that wait for approval": [{"job": job} for job in status.waiting],
        "Jobs": [
            {
                "job": each.job,
                "slots": f"{each.slots:,}",
                "here": standing(each)[0],
                "rounds answered": f"{sum(bool(one.answers) for one in each.rounds):,}",
                "answers": f"{sum(one.answers or 0 for one in each.rounds):,}",
            }
            for each in status.jobs
        ],
        "Crowd jobs": crowds(status.crowds),
        "Refused jobs": [{"job": job, "reason": why} for job, why in status.refused.items()],
        "Open crowd jobs not contributed to": [
            {"jobs": f"{count:,}", "reason": reason} for reason, count in counted
        ],
    }


def crowds(several: Iterable[CrowdStatus]) -> list[dict[str, str]]:
    """Return a row for each crowd job: contributions, their cost, and what the trainer signed."""
    return [
        {
            "job": each.job,
            "contributions": ", ".join(
                f"{count:,} {outcome}" for outcome, count in each.contributions.items()
            ),
            "clients": f"{each.clients:,}",
            "ε each time": f"{each.epsilon:.3g}",
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
    return "not compared yet: the job is open, or its closing or logs are still to be read"


def rules(policy: Policy) -> Facts:
    """Describe an owner's policy: the price that it allows, then each field of policy.toml."""
    empty = {"mechanisms": "the kind of noise that fits delta", "ranges": "any bounds"}
    fields = policy.model_dump(mode="json", exclude_none=True).items()
    several = {name: value if isinstance(value, list | dict) else [value] for name, value in fields}
    caps = [policy.cap]
    if policy.crowd_families and policy.maximum_local_epsilon is not None:
        # the same epsilon, pure as crowds spend it, may tell more than Gaussian noise
        pure = min(policy.maximum_local_epsilon, policy.maximum_epsilon)
        caps.append(Cap(epsilon=pure, delta=0.0))
    return {
        "Cost to each record": f"{price(policy.cap)} at most, all jobs together, ever",
        "In plain words": guess(max(caps, key=chance)).replace("without the job", "without any"),
        **{
            name: ", ".join(map(str, values)) or empty.get(name, "nothing")
            for name, values in several.items()
        },
    }


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
