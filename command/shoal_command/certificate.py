"""`shoal certificate verify`: checks a release certificate without asking anybody."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from shoal_command.connection import read_file
from shoal_command.terminal import AsJson, ExitStatus, fail, tell
from shoal_kit.manifest_book import HISTORY
from shoal_kit.manifest_chain import history_beside, open_chain
from shoal_protocol.certificates.checks import Verified, verify_certificate
from shoal_protocol.certificates.release_certificate import (
    CertifiedRound,
    LostRound,
    ReleaseCertificate,
)
from shoal_protocol.jobs.job_request import study_name
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.job_costs import coalition_in_words, coalitions, epsilon_at
from shoal_protocol.rounds.attestations import FAILURES
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import format_time
from shoal_protocol.wire.errors import ProtocolError, UnknownManifest

Said = dict[str, Any]


def released(said: Said) -> Iterator[str]:
    """Say what the released rounds asked, of whom, with what noise and at what price for each."""
    for group in alike(said["rounds"], _terms):
        one = group[0]
        cohorts = span([each["cohort_size"] for each in group])
        yield (
            f"{_counted(group)}: {one['query'].replace('_', ' ')}, {one['dimension']:,} numbers: "
            f"the sum over {cohorts} of the {one['population_size']:,} clients that it asks, "
            f"with their noise. {noise(one)} {_price_of_each(one, said['privacy']['delta'])}"
        )
    asked = said["participations"]
    yield (
        f"Each of the {said['population_size']:,} clients who joined was asked in "
        f"{span([asked['least'], asked['most']])} of all rounds, the lost ones too, and pays for "
        "those alone."
    )


def noise(of: Said) -> str:
    """Say how much noise a round has, and what it is counted on in spite of."""
    mechanism, scale = of["noise"]["mechanism"].replace("_", " "), of["noise"]["scale"]
    whose = "from each client" if of["noise"]["mechanism"] == "discrete_gaussian" else "in all"
    dropouts = of["population_size"] - of["minimum_cohort"]
    return (
        f"Noise: {mechanism}, of scale {scale:,.4g} {whose}, in lattice units. It is counted on "
        f"even if {dropouts:,} clients are missing and {of['colluders']:,} of the others collude."
    )


def alike(rounds: Iterable[Said], trait: Callable[[Said], Hashable]) -> list[list[Said]]:
    """Return the rounds in groups of those with one trait, in order of their first ones."""
    groups = defaultdict[Hashable, list[Said]](list)
    for each in rounds:
        groups[trait(each)].append(each)
    return list(groups.values())


def span(sizes: Sequence[int]) -> str:
    """Return "3" or "3 to 7"."""
    least, most = min(sizes), max(sizes)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _terms(of: Said) -> Hashable:
    names = ("query", "dimension", "population_size", "minimum_cohort", "colluders", "mu")
    return (*(of[name] for name in names), of["epsilon"], *sorted(of["noise"].items()))


def _counted(group: Sequence[Said]) -> str:
    count = "1 round" if len(group) == 1 else f"{len(group):,} rounds"
    return f"{count} (number {runs(each['number'] for each in group)})"


def _price_of_each(of: Said, delta: float) -> str:
    epsilon = epsilon_at(delta, Cost.stated(of["mu"], of["epsilon"]))
    at = f" at delta {delta:g}" if delta else ", with delta 0"
    return f"By itself each costs a client that it asks epsilon {epsilon:.4g}{at}."


def runs(numbers: Iterable[int]) -> str:
    """Return "0 to 11, 13" for ascending numbers 0, 1, ... 11 and 13."""
    each = np.fromiter(numbers, np.int64)
    found = np.split(each, np.flatnonzero(np.diff(each) != 1) + 1)
    return ", ".join(span([part[0], part[-1]]) for part in found)


COMPARE: Final = "Compare it with the digest that you pinned over another channel."
NOT_SHOWN: Final = (
    "that the clients exist, each of them once, and that their records are true",
    "that clients drew their noise honestly, beyond the colluders that are allowed for",
    "that the operators are independent of one another, and that each kept its keys",
    "that rounds ask what the study's method would, and that the posterior follows from the sums "
    "(--replay tells): whatever is asked within the job's terms costs no more privacy",
    "that there are no other releases: each Compute node's ledger lists what it took part in",
)
LEFT_OUT: Final = (
    "that clients whom later rounds left out had been revoked: the rosters show it (--consortium)"
)
OWNERS: Final = (
    "that rounds tolerate their largest data holders as colluders, and that no answer is below "
    "the one by which all nodes together are priced: a roster shows it (--consortium)"
)


def certificate_facts(verified: Verified) -> dict[str, Any]:
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
            "name": study_name(request.task),
            "columns": [each.name for each in request.terms.bounds],
            "model": next(
                (
                    f"the installed model {model.entry_point}@{model.digest}"
                    for model, _ in request.terms.installed_models()
                ),
                None,
            ),
        },
        "population_size": report.population_size,
        "participations": report.participations.model_dump(),
        "rounds": [_round(verified, each) for each in certificate.rounds],
        "lost_rounds": [_lost(each) for each in certificate.lost_rounds],
        "trainer": _signer(verified, certificate.report),
        "totalled_by": [each.signer for each in certificate.totals],
        "prices": [
            {
                "who": each.adversary,
                "sees": each.sees,
                "promised": each.promised and each.promised.model_dump(),
                "bought": each.bought and each.bought.model_dump(),
            }
            for each in certificate.statements
        ],
        "coalitions": _coalitions(certificate),
        "privacy": report.privacy.model_dump(mode="json"),
        "not_shown": [
            *NOT_SHOWN,
            *([] if verified.all_rosters else [LEFT_OUT]),
            *([] if verified.holders_known else [OWNERS]),
        ],
    }


def _signer(verified: Verified, signed: Signed[Any]) -> dict[str, str]:
    party = verified.signer(signed)
    return {"name": party.name, "operator": party.operator}


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
        "charges": [
            {"node": each.node, "number": each.charge.entry.number, "hash": each.charged}
            for each in (signed.body for signed in certified.partial_sums)
        ],
    }


def _lost(lost: LostRound) -> dict[str, Any]:
    word = lost.abandonment
    return {
        "number": lost.spec.body.number,
        "round": lost.spec.digest,
        "reason": "no client was asked, says the trainer alone"
        if word is None
        else FAILURES[word.body.reason.code],
    }


def certificate_in_words(verified: Verified) -> Iterator[str]:
    """Say what was released, to whom, from how many, by whose word and at what price."""
    yield "The certificate holds."
    for title, paragraphs in sections(certificate_facts(verified)).items():
        yield f"\n{title}"
        yield from (f"  {each}" for each in paragraphs)


def sections(said: Said) -> dict[str, list[str]]:
    """Return paragraphs for each thing that a certificate says, by their titles."""
    manifest, task, rounds = said["manifest"], said["task"], said["rounds"]
    lost_rounds = [
        f"{_counted(each)}: {each[0]['reason']}."
        for each in alike(said["lost_rounds"], lambda each: each["reason"])
    ]
    return {
        "Under which agreement": [
            f"Version {manifest['version']} of the manifest of {manifest['consortium']}, digest "
            f"{manifest['digest']}. {_trusted(manifest)}",
            *(
                f"Version {number} was signed in an emergency, without a quorum of the Compute "
                f"nodes: {reason}."
                for number, reason in manifest["emergencies"].items()
            ),
        ],
        "What was released, and to whom": [
            f"A posterior of {task['model'] or task['name'].replace('_', ' ')} on the "
            f"columns {', '.join(task['columns'])}, made of the sums below, for "
            f"{_party(said['analyst'])}, as job {said['job']}. "
            "Take all of it to be known to everybody.",
            f"What it is for: {said['purpose'] or 'the request does not say.'}",
        ],
        "Its rounds, whose ids and ledger entries are in the JSON": list(released(said)),
        **({"Lost rounds": lost_rounds} if lost_rounds else {}),
        "At what price for each client, by replacement of all its records": [
            *(_price(each) for each in said["prices"]),
            *(f"{each['says']}." for each in said["coalitions"]),
        ],
        "Who signed that this is so": [
            f"{_party(said['analyst'])}: the job request.",
            f"{_party(said['trainer'])}: the rounds' specs, and the report with the posterior, "
            "which determines everything else in this certificate.",
            *(_attested(group) for group in alike(rounds, _signers)),
            f"{', '.join(said['totalled_by'])}: that they charged no other round of the job and "
            "take none, and that this is its report. Each signs this once for a job, so another "
            "certificate of this job holds only if all of them lie.",
        ],
        "What no certificate can show": [f"- {each}" for each in said["not_shown"]],
    }


def _coalitions(certificate: ReleaseCertificate) -> list[dict[str, Any]]:
    """Return how likely random nodes open an answer, of the rounds with fewest nodes."""
    sharing = certificate.request.body.sharing
    if sharing.committee is None:
        return []
    nodes = min(len(each.spec.body.compute_nodes) for each in certificate.rounds)
    return [
        {"size": size, "opens": chance, "says": coalition_in_words(size, chance)}
        for size, chance in coalitions(
            nodes=nodes, committee=sharing.committee, opening=sharing.opening(nodes)
        ).items()
    ]


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


def _price(of: dict[str, Any]) -> str:
    against = f"Against {of['who']} (seeing {of['sees']}): "
    if of["promised"] is None:
        return f"{against}nothing is promised."
    promised, delta = of["promised"]["epsilon"], of["promised"]["delta"]
    price = f"epsilon {promised:.4g}" + (f" at delta {delta:g}" if delta else ", with delta 0")
    return f"{against}{price}; {of['bought']['epsilon']:.4g} with the noise that was there."


def _signers(of: Said) -> Hashable:
    return tuple(each["name"] for each in of["compute_nodes"]), of["aggregator"]["name"]


def _attested(rounds: Sequence[Said]) -> str:
    """Say by whose word the sums of these rounds, which have the same signers, are right."""
    of = rounds[0]
    return (
        f"Of {_counted(rounds)}, {len(of['compute_nodes'])} of {of['compute_nodes_in_all']} "
        f"Compute nodes: {'; '.join(map(_party, of['compute_nodes']))}. Their partial sums are of "
        "one cohort each time and, added up again here, give the result that "
        f"{_party(of['aggregator'])} signed."
    )


app = typer.Typer(no_args_is_help=True, help="Fetch a job's release certificate, or check one.")


def checked(file: Path, manifest: Path, consortium: Path | None) -> Verified:
    """Check a certificate's file by a manifest's, and by all versions beside it or in a directory.

    Raises:
        RefusedCertificate: it does not hold.
        ValueError: the directory holds no consortium, or another one than the manifest's.
    """
    known = [] if consortium is None else open_chain(consortium)
    history = tuple(history_beside(manifest))
    try:
        return verify_certificate(
            read_file(file), read_file(manifest), known=known, history=history
        )
    except UnknownManifest as error:
        fail(
            f"whether the certificate holds cannot be told yet: {error}. Put the missing versions "
            f"into {manifest.parent / HISTORY}, or give the consortium's directory by --consortium",
            ExitStatus.NOT_YET,
        )


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="The certificate.", metavar="FILE")],
    manifest: Annotated[Path, typer.Option(help="The consortium's signed manifest.json.")],
    consortium: Annotated[
        Path | None,
        typer.Option(help="The consortium's directory: check by its rosters who was left out."),
    ] = None,
    replay: Annotated[
        bool, typer.Option(help="Also carry out the study again on the certificate's own sums.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a certificate offline, and say what was released, to whom and at what price.

    The manifest may be any version of it that you trust: the one that the certificate is bound to
    is looked for in the history beside it, and in the consortium's directory. Of that directory
    only versions that link to the manifest count; one of another consortium is refused.

    With `--replay` it also says whether the study, carried out again on the certificate's sums,
    asks the same and ends with the same posterior, but for rounding. A process of its own does so,
    with limited time and memory and without any model of NumPyro.

    It asks nobody and needs no party directory. Exit status 1: the certificate does not hold; 6: it
    cannot be told, for a version of the manifest is missing, or a replay is not possible; 7: the
    certificate holds, and its replay differs.
    """
    try:
        verified = checked(file, manifest, consortium)
    except ProtocolError as error:
        fail(f"the certificate does not hold. {error}", ExitStatus.MISTAKE)
    facts, words = certificate_facts(verified), list(certificate_in_words(verified))
    if not replay:
        tell(facts, as_json, *words)
        return
    facts["replay"] = _replayed(read_file(file))
    outcome, detail = (facts["replay"][each] for each in ("outcome", "detail"))
    tell(facts, as_json, *words, f"\nReplay: {outcome}. {detail[:1].upper()}{detail[1:]}.")
    if status := _STATUS_OF_REPLAY.get(outcome):
        raise typer.Exit(status)


_STATUS_OF_REPLAY: Final = {
    "differs": ExitStatus.CONTRADICTION,
    "not possible": ExitStatus.NOT_YET,
}
_REPLAY_SECONDS: Final = 900


def _replayed(certificate: bytes) -> dict[str, str]:
    """Return what a process of its own says of a certificate that holds: `outcome`, `detail`."""
    if find_spec("shoal_studies") is None:
        why = "studies are not installed here: pip install shoal"
        return {"outcome": "not possible", "detail": why}
    # -P: nothing of the current directory is imported, which may be where a certificate came from
    command = [sys.executable, "-P", "-X", "utf8", "-m", "shoal_studies.replay"]
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            input=certificate,
            env=one_thread,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_REPLAY_SECONDS,
            check=True,
        )
    except subprocess.SubprocessError:
        why = "it failed, or takes more time or memory than it may"
        return {"outcome": "not possible", "detail": why}
    said: dict[str, str] = json.loads(done.stdout)
    return said
