"""Shows a verified release certificate, in plain words and as JSON."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from shoal_command import round_groups
from shoal_command.rendering import plain
from shoal_protocol.certificates.checks import Verified
from shoal_protocol.certificates.release_certificate import (
    CertifiedRound,
    LostRound,
    ReleaseCertificate,
    stated,
)
from shoal_protocol.privacy.adversaries import coalitions
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.studies import Task
from shoal_protocol.studies.numpyro_model import NumpyroTask
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import format_time

COMPARE: Final = "Compare it with the digest that you pinned over another channel."
NOT_SHOWN: Final = (
    "that the clients exist, each of them once, and that their records are true",
    "that clients drew their noise honestly, beyond the colluders that are allowed for",
    "that the operators are independent of one another, and that each kept its keys",
    "that later rounds ask what serves best: thresholds are of a short public list, and where "
    "gradients are taken is the trainer's choice, each record's being clipped anywhere",
    "that the posterior was computed well from the sums: either way it costs no more privacy",
    "that there are no other releases: each Compute node's ledger lists what it took part in",
)
LEFT_OUT: Final = (
    "that clients whom later rounds left out had been revoked: the rosters show it (--consortium)"
)
OWNERS: Final = (
    "that rounds tolerate their largest data holders as colluders, and that no answer is below "
    "the one by which all nodes together are priced: a roster shows it (--consortium)"
)


def as_json(verified: Verified) -> dict[str, Any]:
    """Return what the certificate says, without the vectors."""
    certificate, manifest = verified.certificate, verified.parties.manifest
    request, report = certificate.request.body, certificate.report.body
    return {
        "holds": True,
        "manifest": {
            "digest": verified.parties.digest,
            "consortium": manifest.consortium,
            "version": manifest.sequence,
            "trusted": {
                "digest": verified.trusted.digest,
                "version": verified.trusted.manifest.sequence,
            },
            "emergencies": {
                each.manifest.sequence: each.manifest.emergency
                for each in verified.versions.values()
                if each.manifest.emergency is not None
            },
        },
        "job": certificate.job,
        "analyst": _signer(verified, certificate.request),
        "purpose": request.purpose,
        "began": format_time(certificate.all_rounds[0].spec.body.opened_at),
        "task": {
            "name": request.task.name,
            "columns": [each.name for each in request.task.columns],
            "model": _installed_model(request.task),
        },
        "population_size": report.population_size,
        "participations": report.participations.model_dump(),
        "rounds": [_round(verified, each) for each in certificate.rounds],
        "lost_rounds": [_lost(each) for each in certificate.lost_rounds],
        "trainer": _signer(verified, certificate.report),
        "totalled_by": [each.signer for each in certificate.totals],
        "prices": [
            {
                **price.model_dump(mode="json"),
                "who": statement.adversary,
                "sees": statement.sees,
            }
            for price, statement in zip(
                certificate.prices,
                stated(request, certificate.rounds, certificate.lost_rounds),
                strict=True,
            )
        ],
        "coalitions": _coalitions(certificate),
        "log": _in_log(verified),
        "privacy": report.privacy.model_dump(mode="json"),
        "breakdown": [
            {**each.model_dump(mode="json"), "measured": each.measured} for each in report.breakdown
        ],
        "not_shown": [
            *NOT_SHOWN,
            *([] if verified.all_rosters else [LEFT_OUT]),
            *([] if verified.holders_known else [OWNERS]),
        ],
    }


def _signer(verified: Verified, signed: Signed[Any]) -> dict[str, str]:
    party = verified.signer(signed)
    return {"name": party.name, "operator": party.operator}


def _installed_model(task: Task) -> str | None:
    """Return what data holders allowed by name and digest, where the task is one of those."""
    if not isinstance(task, NumpyroTask):
        return None
    return f"the installed model {task.entry_point}@{task.digest}"


def _round(verified: Verified, certified: CertifiedRound) -> dict[str, Any]:
    spec, result = certified.spec.body, certified.result.body
    return {
        "number": spec.number,
        "round": certified.spec.digest,
        "query": spec.query.name,
        "dimension": spec.dimension,
        "population_size": spec.population_size,
        "minimum_cohort": spec.minimum_cohort,
        "cohort_size": result.cohort_size,
        "cohort": result.cohort,
        "sharing": spec.sharing.model_dump(mode="json"),
        "compute_nodes": [_signer(verified, each) for each in certified.partial_sums],
        "compute_nodes_in_all": len(spec.compute_nodes),
        "aggregator": _signer(verified, certified.result),
        "noise": spec.noise.model_dump(mode="json"),
        "colluders": spec.colluders,
        "mu": spec.mu,
        "epsilon": spec.epsilon,
        "ledger_entries": [_entry(each) for each in certified.ledger_entries],
    }


def _lost(lost: LostRound) -> dict[str, Any]:
    word = lost.abandonment
    return {
        "number": lost.spec.body.number,
        "round": lost.spec.digest,
        "reason": "no client was asked, says the trainer alone"
        if word is None
        else word.body.reason.code,
        "ledger_entries": [_entry(each) for each in lost.ledger_entries],
    }


def _entry(entry: LedgerEntry) -> dict[str, Any]:
    return {"ledger": entry.ledger, "number": entry.number, "digest": entry.digest}


def in_words(verified: Verified) -> RenderableType:
    """Say what was released, to whom, from how many, by whose word and at what price."""
    parts: list[RenderableType] = [Text("The certificate holds.", style="bold green")]
    for title, paragraphs in sections(as_json(verified)):
        parts.append(Text(f"\n{title}", style="bold"))
        parts.extend(
            Padding(plain(paragraph), (0, 0, 0, 2), expand=False) for paragraph in paragraphs
        )
    return Group(*parts)


def sections(said: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield a title and paragraphs for each thing that a certificate says."""
    manifest, task, rounds = said["manifest"], said["task"], said["rounds"]
    yield (
        "Under which agreement",
        [
            f"Version {manifest['version']} of the manifest of {manifest['consortium']}, digest "
            f"{manifest['digest']}. {_trusted(manifest)}",
            *(
                f"Version {number} was signed in an emergency, without a quorum of the Compute "
                f"nodes: {reason}."
                for number, reason in manifest["emergencies"].items()
            ),
        ],
    )
    sums = "sum" if len(rounds) == 1 else "sums"
    yield (
        "What was released, and to whom",
        [
            f"A posterior of {task['model'] or task['name'].replace('_', ' ')} on the "
            f"columns {', '.join(task['columns'])}, made of the {sums} below, for "
            f"{_party(said['analyst'])}, as job {said['job']}. "
            "Take all of it to be known to everybody.",
            f"What it is for: {said['purpose'] or 'the request does not say.'}",
        ],
    )
    are_few = len(rounds) <= round_groups.FEW_ROUNDS
    if are_few:
        for each in rounds:
            yield f"Round {each['number']}", _round_paragraphs(each)
    else:
        yield "Its rounds", list(round_groups.released(said))
    if said["lost_rounds"]:
        yield "Lost rounds", list(round_groups.lost(said))
    yield (
        "At what price for each client, by replacement of all its records",
        [
            *(_price(each) for each in said["prices"]),
            *(f"{each['says']}." for each in said["coalitions"]),
            _breakdown(said["breakdown"]),
        ],
    )
    yield (
        "Who signed that this is so",
        [
            f"{_party(said['analyst'])}: the job request.",
            f"{_party(said['trainer'])}: the rounds' specs, the posterior and this certificate.",
            *(_attested(group) for group in round_groups.alike(rounds, _by_whom(are_few))),
            f"{', '.join(said['totalled_by'])}: that they charged no other round of the job, and "
            "take none.",
        ],
    )
    yield "In the log that the Compute nodes witness", [_logged(said["log"])]
    yield (
        "Ledger entries in which the price is kept",
        [
            f"round {each['number']}: {entry['ledger']}, entry {entry['number']}, {entry['digest']}"
            for each in rounds
            for entry in each["ledger_entries"]
        ]
        if are_few
        else list(round_groups.ledgers(rounds)),
    )
    yield "What no certificate can show", [f"- {each}" for each in said["not_shown"]]


def _in_log(verified: Verified) -> dict[str, Any] | None:
    found = verified.logged
    if found is None:
        return None
    head = found.checkpoint
    signed = list(found.signed_by)
    return {"origin": head.origin, "place": found.place, "size": head.size, "signed_by": signed}


def _logged(of: dict[str, Any] | None) -> str:
    if of is None:
        return (
            "It carries no proof that it is in the consortium's log: it was fetched before the "
            "Compute nodes had signed that, or never logged. Fetch it again."
        )
    return (
        f"Entry {of['place']:,} of {of['origin']}, in a checkpoint of {of['size']:,} entries that "
        f"{', '.join(of['signed_by'])} signed: nobody was shown another certificate of this job "
        "unless such a one is in the log, too (`shoal log monitor`), or so many of them lie."
    )


def _coalitions(certificate: ReleaseCertificate) -> list[dict[str, Any]]:
    """Return the chances of random nodes to open a committee, of the rounds with fewest nodes."""
    sharing = certificate.request.body.sharing
    if sharing.committee is None:
        return []
    nodes = min(len(each.spec.body.compute_nodes) for each in certificate.rounds)
    opening = sharing.opening(nodes)
    found = coalitions(nodes=nodes, committee=sharing.committee, opening=opening)
    return [{**asdict(each), "says": str(each)} for each in found]


def _trusted(manifest: dict[str, Any]) -> str:
    trusted = manifest["trusted"]
    if trusted["version"] == manifest["version"]:
        return COMPARE
    return (
        f"You gave version {trusted['version']}, digest {trusted['digest']}, of the same history. "
        f"{COMPARE.replace('it', 'that one', 1)}"
    )


def _party(party: dict[str, str]) -> str:
    return f"{party['name']} ({party['operator']})"


def _round_paragraphs(of: dict[str, Any]) -> list[str]:
    return [
        f"id {of['round']}",
        f"cohort {of['cohort']}",
        f"{of['query'].replace('_', ' ')}, {of['dimension']:,} numbers: the sum over "
        f"{of['cohort_size']:,} of {of['population_size']:,} clients, with their noise.",
        round_groups.noise(of),
    ]


def _price(of: dict[str, Any]) -> str:
    against = f"Against {of['who']} (seeing {of['sees']}): "
    if of["promised"] is None:
        return f"{against}nothing is promised."
    promised, delta = of["promised"]["epsilon"], of["promised"]["delta"]
    price = f"epsilon {promised:.4g}" + (f" at delta {delta:g}" if delta else ", with delta 0")
    return f"{against}{price}; {of['bought']['epsilon']:.4g} with the noise that was there."


def _breakdown(several: list[dict[str, Any]]) -> str:
    parts = [f"{100.0 * each['share']:.3g} % for {each['measured']}" for each in several]
    return f"Of the price: {'; '.join(parts)}."


def _by_whom(one_by_one: bool) -> Callable[[dict[str, Any]], Hashable]:
    """Return what rounds must share to be told of at once: their signers, or the round itself."""

    def trait(of: dict[str, Any]) -> Hashable:
        names = tuple(each["name"] for each in of["compute_nodes"])
        return of["number"] if one_by_one else (names, of["aggregator"]["name"])

    return trait


def _attested(rounds: Sequence[dict[str, Any]]) -> str:
    """Say by whose word the sums of these rounds, which have the same signers, are right."""
    of = rounds[0]
    nodes = "; ".join(map(_party, of["compute_nodes"]))
    count = f"{len(of['compute_nodes'])} of {of['compute_nodes_in_all']} Compute nodes"
    if len(rounds) == 1:
        which, each = f"round {of['number']}", ""
    else:
        which, each = f"{len(rounds):,} rounds", " each time"
    return (
        f"Of {which}, {count}: {nodes}. Their partial sums are{each} over one cohort and, "
        f"added up again here, give the result that {_party(of['aggregator'])} signed."
    )
