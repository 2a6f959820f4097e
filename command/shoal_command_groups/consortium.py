"""`shoal consortium`: what its authority does, and what anyone may check."""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_agent.client_files import Enrolment, read_enrolment
from shoal_command.certificate import runs
from shoal_command.options import policy_of, policy_options
from shoal_command.terminal import (
    AsJson,
    ExitStatus,
    Yes,
    confirm,
    fail,
    now,
    say,
    tell,
    warn,
)
from shoal_consortium import consortium_files, deployment, dictionary_files, parties
from shoal_consortium.party_files import (
    fingerprint,
    make_authority_directory,
    read_party_card,
    read_signing_key,
)
from shoal_consortium.publishing import Outcome, publish_directory
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import public_half
from shoal_protocol.queries import QueryName
from shoal_protocol.trust.manifest import Consortium, ListedParty, Manifest, ServiceParty
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster import Roster, key_fingerprint
from shoal_protocol.trust.succession import lying_nodes
from shoal_protocol.wire.documents import Signed

app = typer.Typer(no_args_is_help=True, help="Found a consortium, change its roster, check it.")

Directory = Annotated[Path, typer.Argument(help="The consortium directory; it is public.")]
Authority = Annotated[Path, typer.Option(help="The authority's private directory.")]
_MOST_SHOWN: Final = 100
"""Data holders that `show` puts in a table."""

_CALLED: Final = "The fingerprint of the data holder's key, or its enrolment file."
AtOnce = Annotated[
    bool,
    typer.Option("--publish", help="Publish the version, too: from here services are reached."),
]


@app.command()
@policy_options(colluding_holders=1, minimum_holders=3)
def create(
    directory: Directory,
    authority: Annotated[
        Path, typer.Option(help="New private directory for the authority's signing key.")
    ],
    name: Annotated[str, typer.Option(help="Name of the consortium.")],
    card: Annotated[list[Path], typer.Option(help="A party's card; repeatable.")],
    rules: dict[str, Any],
    recovery: Annotated[
        Path | None,
        typer.Option(help="New private directory for the recovery key; else AUTHORITY-recovery."),
    ] = None,
    holder: Annotated[
        list[Path] | None, typer.Option(help="Enrolment file of a data holder; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign version 1 of the manifest and print the digest that every party pins.

    Compare the cards' fingerprints with their owners first: nobody checks them afterwards.
    """
    cards = [read_party_card(path) for path in card]
    roster = parties.enrol(Roster(), [read_enrolment(path) for path in holder or []])
    key, spare = (SigningKey(secrets.token_bytes(32)) for _ in range(2))
    recovery = recovery or authority.with_name(f"{authority.name}-recovery")
    manifest = parties.first_manifest(
        name,
        cards,
        roster=roster,
        policy=policy_of(rules, nodes=sum(each.role == "compute" for each in cards)),
        authority=key,
        recovery=spare.verify_key,
    )
    consortium_files.refuse_existing(directory)
    make_authority_directory(authority, key)
    make_authority_directory(recovery, spare)
    consortium = consortium_files.create(directory, manifest, roster)
    _warn_of_weaknesses(consortium)
    tell(
        described(consortium),
        as_json,
        *(f"{each.name}: card {fingerprint(each)}" for each in cards),
        f"Consortium {name} is in {directory}; its authority's key is in {authority}.",
        f"Move {recovery} to where no network reaches it: its key replaces a lost one.",
        "Every party runs `shoal party pin` with this digest, after comparing it with the others:",
        consortium.digest,
    )


@app.command("show")
def show_consortium(directory: Directory, as_json: AsJson = False) -> None:
    """Show parties, operators, policy and roster, after checking the whole chain of versions."""
    chain = open_chain(directory)
    shown = described(chain[-1])
    holders = [_holder(chain, index) for index in range(chain[-1].roster.holders)]
    more = len(holders) - _MOST_SHOWN
    tell(
        shown | {"data_holders": holders, "versions": [each.digest for each in chain]},
        as_json,
        shown | {"data_holders": holders[:_MOST_SHOWN]},
        *([f"{more:,} more data holders: --json lists them all."] if more > 0 else []),
        *of_signatures(chain),
    )


@app.command()
def check(directory: Directory, as_json: AsJson = False) -> None:
    """Say from the manifest alone whether it is set up as the protection assumes; 1 if it is not.

    It asks no service. Who owns the machines, and who can log in, no manifest says.
    """
    chain = open_chain(directory)
    findings = deployment.check(chain[-1].manifest, now=now())
    tell(
        findings,
        as_json,
        findings or "Nothing is wrong as far as the manifest shows.",
        *of_signatures(chain),
    )
    if serious := sum(found.severity == "serious" for found in findings):
        fail(f"{serious} of {len(findings)} findings are serious", ExitStatus.MISTAKE)


@app.command()
def enrol(
    directory: Directory,
    enrolment: Annotated[list[Path], typer.Argument(help="Enrolment files of data holders.")],
    authority: Authority,
    publish: AtOnce = False,
    as_json: AsJson = False,
) -> None:
    """Enrol data holders, give those that grew their slots, or take new keys that old ones signed.

    Signs the next manifest. Compare the fingerprints of new data holders' keys with their owners.
    """
    chain, asking = open_chain(directory), [read_enrolment(path) for path in enrolment]
    *earlier, before = [each.roster for each in chain]
    roster = parties.enrol(before, asking, earlier=earlier)
    _add(
        directory,
        _signed(chain[-1], roster, authority),
        roster,
        [_enrolled(before, roster, each) for each in asking],
        publish,
        as_json,
    )


@app.command()
def replace(
    directory: Directory,
    holder: Annotated[str, typer.Argument(help=_CALLED)],
    enrolment: Annotated[Path, typer.Argument(help="Enrolment file of its new key.")],
    authority: Authority,
    publish: AtOnce = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give a data holder that lost its key another one, for good: sign the next manifest.

    Its slots and what was spent on them stay. Nothing but you shows that the new key is the
    holder's: compare it with a person whom you know. A holder that has its old key rotates.
    """
    chain, asked = open_chain(directory), read_enrolment(enrolment)
    *earlier, before = [each.roster for each in chain]
    index = parties.holder_called([*earlier, before], holder)
    roster = parties.replace(before, index, asked, earlier=earlier)
    manifest = _signed(chain[-1], roster, authority)
    confirm(
        "Replace the key?",
        f"Version {manifest.body.sequence} replaces for good the key of "
        f"{holder_in_words(chain, index)}.",
        "Only a person whom you know can tell you that the new key is the data holder's own.",
        yes=yes,
    )
    _add(directory, manifest, roster, [_enrolled(before, roster, asked)], publish, as_json)


@app.command()
def revoke(
    directory: Directory,
    holder: Annotated[list[str], typer.Argument(help=_CALLED)],
    authority: Authority,
    publish: AtOnce = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Revoke data holders for good: their messages are refused once the version is published."""
    chain = open_chain(directory)
    named = [parties.holder_called([each.roster for each in chain], each) for each in holder]
    roster = parties.revoke(chain[-1].roster, named)
    manifest = _signed(chain[-1], roster, authority)
    lines = [holder_in_words(chain, each) for each in dict.fromkeys(named)]
    confirm(
        "Revoke for good?",
        f"Version {manifest.body.sequence} revokes for good:",
        *(f"- {each}" for each in lines),
        "Once it is published nobody takes their messages, and neither slots nor keys are given "
        "again.",
        yes=yes,
    )
    _add(directory, manifest, roster, [f"Revoked {each}." for each in lines], publish, as_json)


@app.command()
@policy_options(**dict.fromkeys(Policy.model_fields))
def change(
    directory: Directory,
    authority: Authority,
    rules: dict[str, Any],
    card: Annotated[
        list[Path] | None,
        typer.Option(help="Card of a party that is new or has new keys; repeatable."),
    ] = None,
    fingerprint_: Annotated[
        list[str] | None,
        typer.Option(
            "--fingerprint",
            help="Of a card that its party's key in force did not sign, compared with a person.",
        ),
    ] = None,
    retire: Annotated[
        list[str] | None, typer.Option(help="Name of a Compute node or analyst; repeatable.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(help="Field of the policy to leave out; repeatable.")
    ] = None,
    emergency: Annotated[
        str | None,
        typer.Option(help="Why too few Compute nodes are left to sign it; everybody sees this."),
    ] = None,
    all_queries: Annotated[
        bool, typer.Option("--all-queries", help="Allow every query of this version.")
    ] = False,
    publish: AtOnce = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add, replace or retire parties, or change the policy: sign the next manifest.

    Compare the fingerprints of new parties' cards with their owners first.
    """
    chain = open_chain(directory)
    kept = chain if emergency is None else consortium_files.believed(chain)
    cards = [read_party_card(path) for path in card or []]
    queries = {"queries": get_args(QueryName)} if all_queries else {}
    manifest = parties.changed(
        kept,
        authority=read_signing_key(authority / "signing.key"),
        cards=cards,
        retired=retire or [],
        policy=rules | queries | dict.fromkeys(unset or []),
        fingerprints=fingerprint_ or [],
        emergency=emergency,
    )
    confirm(
        "Sign this version?",
        f"Version {manifest.body.sequence} changes:",
        *(f"- {each}" for each in differences(kept[-1].manifest, manifest.body)),
        *(
            f"- version {each.manifest.sequence}, which nobody believed, is taken back"
            for each in chain[len(kept) :]
        ),
        "A version that is published cannot be taken back, and keys that it replaces or retires "
        "are never listed again.",
        yes=yes,
    )
    _add(
        directory,
        manifest,
        kept[-1].roster,
        [f"{each.name}: card {fingerprint(each)}" for each in cards],
        publish,
        as_json,
    )


@app.command("move-authority")
def move_authority(
    directory: Directory,
    authority: Annotated[
        Path, typer.Option(help="Private directory of the authority's key, or the recovery key.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(help="Private directory of the next key; made if there is none."),
    ] = None,
    new_recovery: Annotated[
        Path | None, typer.Option(help="New private directory for the next recovery key.")
    ] = None,
    publish: AtOnce = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move the authority to another key, or replace the recovery key: sign the next manifest.

    Both the old key, or the recovery key, and the next key sign it; it changes nothing else. Then
    the data dictionary is signed again; `publish` hands out both. Run once more, it does only what
    was not done.
    """
    current = open_chain(directory)[-1]
    consent = read_signing_key(authority / "signing.key")
    key = consent if to is None else _key_in(to)
    spare = None if new_recovery is None else _key_in(new_recovery)
    recovery = current.manifest.recovery if spare is None else public_half(spare)
    if to is None or bytes(key.verify_key).hex() != current.manifest.authority:
        manifest = parties.moved(current, consent=consent, authority=key, recovery=recovery)
        confirm(
            "Move the authority?",
            f"Version {manifest.body.sequence} changes for good:",
            *(f"- {each}" for each in differences(current.manifest, manifest.body)),
            yes=yes,
        )
        for place, made in ((to, key), (new_recovery, spare)):
            if place and made and not (place / "signing.key").exists():
                make_authority_directory(place, made)
        current = consortium_files.add_version(directory, manifest, current.roster)
    dictionary_files.sign_again(directory, key)
    _tell_added(
        current,
        [f"The authority's key is in {to or authority}."],
        as_json,
        directory if publish else None,
    )


def _key_in(directory: Path) -> SigningKey:
    """Return the key in a private directory; a new one, which is not written, if there is none."""
    file = directory / "signing.key"
    return read_signing_key(file) if file.exists() else SigningKey(secrets.token_bytes(32))


@app.command()
def publish(directory: Directory, as_json: AsJson = False) -> None:
    """Have Compute nodes sign each new version, hand it to every service and show which took it.

    The trainer gets the data dictionary, too. Once so many Compute nodes have signed a version as
    the one before asks for, their signatures are kept with the manifest in the directory: without
    them nobody believes the version.
    """
    outcomes = publish_directory(directory)
    _tell_published({"manifest": open_chain(directory)[-1].digest}, outcomes, as_json)


def _tell_published(version: dict[str, Any], outcomes: Sequence[Outcome], as_json: bool) -> None:
    """Say who took a version; end the command with an error unless everybody did."""
    tell(version | {"services": outcomes}, as_json, {"services": outcomes})
    if missing := [each for each in outcomes if not each.accepted]:
        unreached = all(each.unreachable for each in missing)
        fail(
            f"{len(missing)} of {len(outcomes)} did not take the newest version; run "
            "`shoal consortium publish` again",
            ExitStatus.UNREACHABLE if unreached else ExitStatus.REFUSED,
        )


def _signed(current: Consortium, roster: Roster, authority: Path) -> Signed[Manifest]:
    return parties.next_manifest(
        current, roster=roster, authority=read_signing_key(authority / "signing.key")
    )


def _add(
    directory: Path,
    manifest: Signed[Manifest],
    roster: Roster,
    lines: Sequence[str],
    publish: bool,
    as_json: bool,
) -> None:
    """Add a version, warn of what is wrong with it, and go on as `_tell_added`."""
    added = consortium_files.add_version(directory, manifest, roster)
    _warn_of_weaknesses(added)
    _tell_added(added, lines, as_json, directory if publish else None)


def _tell_added(
    added: Consortium, lines: Sequence[str], as_json: bool, publish_in: Path | None
) -> None:
    """Say what was added; publish it if `publish_in` is its directory, and say who took it."""
    lines = [*lines, f"Version {added.manifest.sequence}, digest {added.digest}"]
    if publish_in is None:
        tell(
            described(added),
            as_json,
            *lines,
            "Run `shoal consortium publish`, so that the services learn of it.",
        )
        return
    for each in [] if as_json else lines:
        say(each)
    _tell_published(described(added), publish_directory(publish_in), as_json)


def _enrolled(before: Roster, after: Roster, asked: Enrolment) -> str:
    """Say what became of a data holder that asked: its key, and the slots that it was given."""
    holder = after.holder_with(asked.key)
    if holder is None:  # another one that asked took its key's place
        return f"{key_fingerprint(bytes(asked.key))}: replaced"
    old = before.key_if_enrolled(holder) if holder < before.holders else None
    new = key_fingerprint(bytes(asked.key))
    said = [] if old in (None, bytes(asked.key)) else [f"in place of {key_fingerprint(old or b'')}"]
    had = before.slots_of(holder) if holder < before.holders else BitMap()
    if more := after.slots_of(holder) - had:
        said.append(f"enrolled {len(more):,} slots, {runs(more)}")
    return f"Data holder {new}: {'; '.join(said)}."


def _warn_of_weaknesses(consortium: Consortium) -> None:
    for each in deployment.check(consortium.manifest, now=now()):
        warn(f"{each.severity}: {each.subject}: {each.problem}")


def described(consortium: Consortium) -> dict[str, Any]:
    """Return what a reader wants of a version: no keys, no certificates."""
    manifest = consortium.manifest
    roster = consortium.roster
    enrolled = len(roster.enrolled_set)
    listed: list[tuple[str, ListedParty]] = [
        *(("compute", node) for node in manifest.compute_nodes),
        ("aggregator", manifest.aggregator),
        ("trainer", manifest.trainer),
        *(("analyst", analyst) for analyst in manifest.analysts),
    ]
    return {
        "consortium": manifest.consortium,
        "sequence": manifest.sequence,
        "digest": consortium.digest,
        "parties": [
            {
                "role": role,
                "name": party.name,
                "operator": party.operator,
                "url": party.url if isinstance(party, ServiceParty) else None,
            }
            for role, party in listed
        ],
        "policy": manifest.policy.model_dump(mode="json"),
        "holders": roster.holders,
        "slots": {"enrolled": enrolled, "revoked": len(roster) - enrolled},
    }


def holder_in_words(chain: Sequence[Consortium], holder: int) -> str:
    """Say which data holder has an index: its key's fingerprint and its slots."""
    found = _holder(chain, holder)
    return f"data holder {found['key']}, slots {found['slots']}, {found['state']}"


def _holder(chain: Sequence[Consortium], holder: int) -> dict[str, str]:
    listed = [each for each in chain if each.roster.holders > holder]
    with_key = [each for each in listed if each.roster.key_if_enrolled(holder) is not None]
    state = f"enrolled by version {listed[0].manifest.sequence}"
    if len(with_key) < len(listed):
        state = f"revoked by version {listed[len(with_key)].manifest.sequence}"
    return {
        "data_holder": str(holder),
        "key": key_fingerprint(with_key[-1].roster.key_of(holder)),
        "slots": runs(chain[-1].roster.slots_of(holder)),
        "state": state,
    }


def differences(before: Manifest, after: Manifest) -> Iterator[str]:
    """Say every field of the next version that differs, as `field: old → new`.

    Left out are those that always differ, and the roster, whose changes are told by holder.
    """
    old, new = _flat(before), _flat(after)
    for name in old | new:
        if old.get(name) != new.get(name):
            yield f"{name}: {old.get(name, 'none')} → {new.get(name, 'none')}"


def _flat(manifest: Manifest) -> dict[str, str]:
    fields = manifest.model_dump(mode="json", exclude={"sequence", "previous", "roster", "move"})
    nodes, analysts = fields.pop("compute_nodes"), fields.pop("analysts")
    fields |= {f"Compute node {each.pop('name')}": each for each in nodes}
    fields |= {f"analyst {each.pop('name')}": each for each in analysts}
    return dict(_leaves("", fields))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for inner, each in value.items():
            yield from _leaves(f"{name} {inner}".strip(), each)
    elif isinstance(value, list):
        yield name, ", ".join(str(each) for each in value) or "none"
    elif str(value).startswith("-----BEGIN"):
        yield name, f"SHA-256 {hashlib.sha256(value.encode()).hexdigest()}"
    else:
        yield name, "none" if value is None else str(value)


def of_signatures(chain: Sequence[Consortium]) -> Iterator[str]:
    """Say who must sign versions, how many must lie for two histories, and what had no quorum."""
    manifest = chain[-1].manifest
    if manifest.policy.manifest_signatures is None:
        yield "The policy has no manifest_signatures: Compute nodes do not sign new versions."
        return
    yield (
        f"The next version is believed once {manifest.quorum} of {len(manifest.compute_nodes)} "
        "Compute nodes signed it. For two parties to believe two histories, "
        f"{lying_nodes(manifest)} of them must lie, with the authority."
    )
    for before, version in pairwise(chain):
        number, reason = version.manifest.sequence, version.manifest.emergency
        is_unsigned = version.signed_manifest.countersignatures is None
        if reason is not None:
            yield f"Version {number} was signed by the authority in an emergency: {reason}."
        elif is_unsigned and before.manifest.policy.manifest_signatures is not None:
            yield (
                f"Version {number} is not signed by Compute nodes yet: run "
                "`shoal consortium publish`."
            )
