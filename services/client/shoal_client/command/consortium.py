"""`shoal consortium`: what its authority does, and what anyone may check; it holds no party."""

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from nacl.signing import SigningKey
from rich.table import Table

from shoal_client import consortium_files, deployment
from shoal_client.command.policy import (
    Delta,
    MaximumEpsilon,
    MaximumJobSeconds,
    MaximumJoinSeconds,
    MaximumLocalEpsilon,
    MaximumRoundSeconds,
    Mechanisms,
    MinimumCohort,
    MinimumColluders,
    MinimumThreshold,
    policy,
)
from shoal_client.command.publishing import publish_to_all
from shoal_client.command.terminal import (
    AsJson,
    ExitStatus,
    fail,
    now,
    plain,
    say,
    say_json,
    show,
    warn,
)
from shoal_client.enrolment_files import read_enrolments
from shoal_client.parties import (
    enrol as enrol_keys,
)
from shoal_client.parties import (
    fingerprint,
    first_manifest,
    next_manifest,
    shared_operators,
)
from shoal_client.party_files import (
    make_authority_directory,
    read_party_card,
    read_signing_key,
)
from shoal_protocol.manifest import Analyst, Consortium, ServiceParty
from shoal_protocol.reach import JOB_SECONDS, JOIN_SECONDS
from shoal_protocol.roster import Roster

app = typer.Typer(no_args_is_help=True, help="Found a consortium, change its roster, check it.")

Directory = Annotated[Path, typer.Argument(help="The consortium directory; it is public.")]
Authority = Annotated[Path, typer.Option(help="The authority's private directory.")]


@app.command()
def create(
    directory: Directory,
    authority: Annotated[
        Path, typer.Option(help="New private directory for the authority's signing key.")
    ],
    name: Annotated[str, typer.Option(help="Name of the consortium.")],
    card: Annotated[list[Path], typer.Option(help="A party's card; repeatable.")],
    minimum_cohort: MinimumCohort,
    minimum_colluders: MinimumColluders,
    maximum_epsilon: MaximumEpsilon,
    delta: Delta,
    mechanism: Mechanisms = None,
    maximum_round_seconds: MaximumRoundSeconds = 86_400,
    minimum_threshold: MinimumThreshold = None,
    maximum_local_epsilon: MaximumLocalEpsilon = None,
    maximum_join_seconds: MaximumJoinSeconds = JOIN_SECONDS,
    maximum_job_seconds: MaximumJobSeconds = JOB_SECONDS,
    clients: Annotated[
        list[Path] | None, typer.Option(help="Enrolment file of clients; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign version 1 of the manifest and print the digest that every party pins.

    Compare the cards' fingerprints with their owners first: nobody checks them afterwards.
    """
    cards = [read_party_card(path) for path in card]
    roster = Roster(b"")
    if clients:
        roster = enrol_keys(roster, read_enrolments(clients))
    key = SigningKey(secrets.token_bytes(32))
    allowed = policy(
        minimum_cohort=minimum_cohort,
        minimum_colluders=minimum_colluders,
        maximum_epsilon=maximum_epsilon,
        delta=delta,
        mechanisms=mechanism,
        maximum_round_seconds=maximum_round_seconds,
        minimum_threshold=minimum_threshold,
        maximum_local_epsilon=maximum_local_epsilon,
        maximum_join_seconds=maximum_join_seconds,
        maximum_job_seconds=maximum_job_seconds,
    )
    manifest = first_manifest(name, cards, roster=roster, policy=allowed, authority=key)
    consortium_files.refuse_existing(directory)
    make_authority_directory(authority, key)
    consortium = consortium_files.create(directory, manifest, roster)
    if as_json:
        say_json(_described(consortium))
        return
    for each in cards:
        say(f"{each.name}: card {fingerprint(each)}")
    _warn_of_shared_operators(consortium)
    say(f"Consortium {name} is in {directory}; its authority's key is in {authority}.")
    say("Every party runs `shoal party pin` with this digest, after comparing it with the others:")
    say(consortium.digest)


@app.command("show")
def show_consortium(directory: Directory, as_json: AsJson = False) -> None:
    """Show parties, operators, policy and roster, after checking the whole chain of versions."""
    chain = consortium_files.open_chain(directory)
    consortium = chain[-1]
    if as_json:
        say_json(_described(consortium) | {"versions": [version.digest for version in chain]})
        return
    manifest = consortium.manifest
    parties = Table(
        "name", "role", "operator", "address", title=f"Consortium {manifest.consortium}"
    )
    for role, party in _parties(consortium):
        address = party["url"] or "-"
        parties.add_row(party["name"], role, plain(party["operator"]), plain(address))
    show(parties)
    rules = manifest.policy
    enrolled = len(consortium.roster.enrolled())
    say(
        f"Policy: cohorts of at least {rules.minimum_cohort:,} clients, of whom at least "
        f"{rules.minimum_colluders:,} may collude; at most epsilon "
        f"{rules.maximum_epsilon:g} at delta {rules.delta:g} for each client over all jobs; "
        f"rounds of at most {rules.maximum_round_seconds:,} s; {rules.maximum_join_seconds:,} s to "
        f"join at most, and {rules.maximum_job_seconds:,} s for a whole job."
    )
    nodes = len(manifest.compute_nodes)
    say(f"Sums open with {rules.minimum_threshold or nodes} of {nodes} Compute nodes, or more.")
    say(f"Queries: {', '.join(rules.queries)}. Mechanisms: {', '.join(rules.mechanisms)}.")
    if rules.maximum_local_epsilon is not None:
        local = f"{rules.maximum_local_epsilon:g}"
        say(f"Crowd jobs: each may cost one client a local epsilon of {local}, with delta 0.")
    say(f"Roster: {enrolled:,} clients enrolled, {len(consortium.roster) - enrolled:,} revoked.")
    _warn_of_shared_operators(consortium)
    say(f"Version {manifest.sequence}, digest {consortium.digest}")


@app.command()
def check(directory: Directory, as_json: AsJson = False) -> None:
    """Say from the manifest alone whether it is set up as the protection assumes; 1 if it is not.

    It asks no service. Who owns the machines, and who can log in, no manifest says.
    """
    findings = deployment.check(consortium_files.open_chain(directory)[-1].manifest, now=now())
    serious = [found for found in findings if found.severity is deployment.Severity.SERIOUS]
    if as_json:
        say_json([asdict(found) for found in findings])
    elif findings:
        table = Table("severity", "whose", "what")
        for found in findings:
            table.add_row(found.severity, plain(found.subject), plain(found.problem))
        show(table)
    else:
        say("Nothing is wrong as far as the manifest shows.")
    if serious:
        fail(f"{len(serious)} of {len(findings)} findings are serious", ExitStatus.MISTAKE)


@app.command()
def enrol(
    directory: Directory,
    enrolment: Annotated[list[Path], typer.Argument(help="Enrolment files of clients.")],
    authority: Authority,
    as_json: AsJson = False,
) -> None:
    """Enrol clients: sign the next manifest version with a longer roster."""
    *earlier, current = consortium_files.open_chain(directory)
    keys = read_enrolments(enrolment)
    roster = enrol_keys(current.roster, keys, earlier=[each.roster for each in earlier])
    following = _add_version(directory, current, roster, authority)
    first, last = len(current.roster), len(roster) - 1
    _report(following, f"Enrolled {last - first + 1:,} clients, indices {first} to {last}", as_json)


@app.command()
def revoke(
    directory: Directory,
    client: Annotated[list[int], typer.Argument(min=0, help="Indices of clients.")],
    authority: Authority,
    as_json: AsJson = False,
) -> None:
    """Revoke clients for good: their next messages are refused once the version is published."""
    current = consortium_files.open_chain(directory)[-1]
    unknown = [index for index in client if index >= len(current.roster)]
    if unknown:
        raise ValueError(f"{len(unknown)} of these clients are not on the roster")
    roster = current.roster.with_revoked(client)
    if roster.digest == current.roster.digest:
        raise ValueError("these clients are revoked already")
    following = _add_version(directory, current, roster, authority)
    _report(following, f"Revoked {len(set(client)):,} clients", as_json)


@app.command()
def publish(directory: Directory, as_json: AsJson = False) -> None:
    """Hand the versions of the manifest to every service and show which of them took it."""
    chain = consortium_files.open_chain(directory)
    consortium_files.repair(directory)
    outcomes = publish_to_all(chain)
    if as_json:
        say_json(
            {
                "manifest": chain[-1].digest,
                "services": [
                    {"name": outcome.name, "accepted": outcome.accepted, "detail": outcome.detail}
                    for outcome in outcomes
                ],
            }
        )
    else:
        table = Table("service", "accepted", "detail", title=f"Version {len(chain)}")
        for outcome in outcomes:
            table.add_row(outcome.name, "yes" if outcome.accepted else "no", plain(outcome.detail))
        show(table)
    missing = [outcome for outcome in outcomes if not outcome.accepted]
    if missing:
        unreached = all(outcome.unreachable for outcome in missing)
        fail(
            f"{len(missing)} of {len(outcomes)} services do not have version {len(chain)}; "
            "run the same command again",
            ExitStatus.UNREACHABLE if unreached else ExitStatus.REFUSED,
        )


def _add_version(
    directory: Path, current: Consortium, roster: Roster, authority: Path
) -> Consortium:
    key = read_signing_key(authority / "signing.key")
    manifest = next_manifest(current, roster=roster, authority=key)
    return consortium_files.add_version(directory, manifest, roster)


def _report(consortium: Consortium, done: str, as_json: bool) -> None:
    if as_json:
        say_json(_described(consortium))
        return
    say(f"{done}. Version {consortium.manifest.sequence}, digest {consortium.digest}")
    say("Run `shoal consortium publish`, so that the services learn of it.")


def _described(consortium: Consortium) -> dict[str, Any]:
    manifest = consortium.manifest
    enrolled = len(consortium.roster.enrolled())
    return {
        "consortium": manifest.consortium,
        "sequence": manifest.sequence,
        "digest": consortium.digest,
        "parties": [{"role": role, **party} for role, party in _parties(consortium)],
        "policy": manifest.policy.model_dump(mode="json"),
        "clients": {"enrolled": enrolled, "revoked": len(consortium.roster) - enrolled},
        "shared_operators": shared_operators(manifest),
    }


def _parties(consortium: Consortium) -> list[tuple[str, dict[str, Any]]]:
    manifest = consortium.manifest
    listed: list[tuple[str, ServiceParty | Analyst]] = [
        *[("compute", node) for node in manifest.compute_nodes],
        ("aggregator", manifest.aggregator),
        ("trainer", manifest.trainer),
        *[("analyst", analyst) for analyst in manifest.analysts],
    ]
    return [
        (
            role,
            {
                "name": party.name,
                "operator": party.operator,
                "url": party.url if isinstance(party, ServiceParty) else None,
            },
        )
        for role, party in listed
    ]


def _warn_of_shared_operators(consortium: Consortium) -> None:
    for operator, names in shared_operators(consortium.manifest).items():
        warn(f"{operator} runs {', '.join(names)}; the protection assumes separate organisations.")
