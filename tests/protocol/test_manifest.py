"""The root of trust: pinned, chained by one authority, and alone in saying who may sign what."""

from typing import Any

import pydantic
import pytest
from nacl.signing import SigningKey

from shoal_protocol.jobs.membership import Membership
from shoal_protocol.trust.manifest import (
    AUTHORITY_NAME,
    AuthorityMove,
    Consortium,
    ListedParty,
    Manifest,
)
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.roster_changes import with_enrolled, with_revoked
from shoal_protocol.trust.succession import following_version, move_message
from shoal_protocol.wire.documents import Role, Signed, sign
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    WrongManifest,
    WrongSigner,
)
from tests.world.examples import (
    AUTHORITY,
    CONSORTIUM,
    DOCUMENTS,
    JOB,
    POLICY,
    client_key,
    consortium,
    manifest,
    named,
    roster,
    signing_key,
)

ROSTER = CONSORTIUM.roster.encode()
PARTIES = ["compute-0", "compute-1", "compute-2", "aggregator", "trainer", "analyst"]
MAY_SIGN = {
    "job_withdrawal": {"analyst"},
    "job_request": {"analyst"},
    "job_check": {"analyst"},
    "jobs_query": {"analyst"},
    "round_spec": {"trainer"},
    "posterior_report": {"trainer"},
    "job_end": {"trainer"},
    "manifest_statement": {"compute-0", "compute-1", "compute-2"},
    "loss": {"compute-0", "compute-1", "compute-2", "aggregator", "trainer"},
    "journal_head": {"compute-0", "compute-1", "compute-2", "aggregator", "trainer"},
    "kept_heads": {"compute-0", "compute-1", "compute-2", "aggregator", "trainer"},
    "job_total": {"compute-0", "compute-1", "compute-2"},
    "charges": {"compute-0", "compute-1", "compute-2"},
    "holdings": {"compute-0", "compute-1", "compute-2"},
    "vote": {"compute-0", "compute-1", "compute-2"},
    "partial_sum": {"compute-0", "compute-1", "compute-2"},
    "result": {"aggregator"},
    "abandonment": {"compute-0", "compute-1", "compute-2", "aggregator"},
}


def next_version(*, of: Roster | None = None, **changes: Any) -> Manifest:
    fields = {"sequence": 2, "previous": CONSORTIUM.digest} | changes
    return manifest(of=of or CONSORTIUM.roster, **fields)


def follow(body: Manifest, roster_file: bytes = ROSTER, key: SigningKey = AUTHORITY) -> Consortium:
    return following_version(CONSORTIUM, sign(body, AUTHORITY_NAME, key).encode(), roster_file)


def test_the_next_version_is_followed_and_the_one_after_it() -> None:
    grown = with_revoked(
        with_enrolled(CONSORTIUM.roster, [(signing_key("newcomer").verify_key, 1)]), [2]
    )
    second = follow(next_version(of=grown), grown.encode())
    assert len(second.roster) == len(CONSORTIUM.roster) + 1
    third = manifest(sequence=3, previous=second.digest, of=grown)
    signed = sign(third, AUTHORITY_NAME, AUTHORITY)
    assert following_version(second, signed.encode(), grown.encode()).manifest.sequence == 3
    with pytest.raises(WrongManifest):
        following_version(CONSORTIUM, signed.encode(), grown.encode())


HEIR, RECOVERY = signing_key("heir"), signing_key("recovery")
WITH_RECOVERY = consortium(recovery=bytes(RECOVERY.verify_key).hex())


def moved(
    *, by: str = "authority", consent: SigningKey = AUTHORITY, **changes: Any
) -> Signed[Manifest]:
    """Return the version that moves the authority to its heir, with `changes` to its fields.

    `consent` signs for the key `by` of the version before; the heir signs the version.
    """
    before = WITH_RECOVERY.manifest
    fields = {name: getattr(before, name) for name in Manifest.model_fields}
    fields |= {"sequence": 2, "previous": WITH_RECOVERY.digest, "founder": before.authority}
    draft = Manifest(**(fields | {"authority": bytes(HEIR.verify_key).hex()} | changes))
    move = AuthorityMove(by=by, signature=consent.sign(move_message(draft)).signature.hex())
    return sign(draft.model_copy(update={"move": move}), AUTHORITY_NAME, HEIR)


def test_a_version_signed_by_a_foreign_authority_is_refused_even_if_it_names_itself() -> None:
    foreign = signing_key("foreign authority")
    body = next_version(authority=bytes(foreign.verify_key).hex())
    with pytest.raises(MalformedDocument, match="moves the authority"):
        follow(body, key=foreign)
    with pytest.raises(BadSignature):
        follow(next_version(), key=foreign)


@pytest.mark.parametrize(("by", "consent"), [("authority", AUTHORITY), ("recovery", RECOVERY)])
def test_an_authority_moves_to_a_key_that_the_old_one_or_the_recovery_key_consents_to(
    by: str, consent: SigningKey
) -> None:
    second = following_version(WITH_RECOVERY, moved(by=by, consent=consent).encode(), ROSTER)
    assert second.manifest.identity == WITH_RECOVERY.manifest.authority
    third = manifest(
        sequence=3,
        previous=second.digest,
        authority=second.manifest.authority,
        recovery=second.manifest.recovery,
        founder=second.manifest.founder,
    )
    following_version(second, sign(third, AUTHORITY_NAME, HEIR).encode(), ROSTER)
    with pytest.raises(BadSignature):
        following_version(second, sign(third, AUTHORITY_NAME, AUTHORITY).encode(), ROSTER)


@pytest.mark.parametrize(
    ("signed", "refusal"),
    [
        (moved(consent=HEIR), BadSignature),  # the thief of a name consents for himself
        (moved(consent=RECOVERY), BadSignature),
        (moved(by="recovery", consent=AUTHORITY), BadSignature),
        (sign(moved().body, AUTHORITY_NAME, AUTHORITY), BadSignature),  # by the old key alone
        (moved(founder=None), MalformedDocument),
        (moved(founder=bytes(HEIR.verify_key).hex()), MalformedDocument),
        (moved(policy=POLICY.model_copy(update={"minimum_cohort": 9})), MalformedDocument),
        (moved(previous=CONSORTIUM.digest), WrongManifest),
    ],
    ids=[
        "consent of the new key",
        "of the recovery key in the old one's name",
        "of the old key in the recovery key's name",
        "signed by the old key alone",
        "without a founder",
        "with another founder",
        "with another policy",
        "of another version",
    ],
)
def test_an_authority_does_not_move_otherwise(
    signed: Signed[Manifest], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        following_version(WITH_RECOVERY, signed.encode(), ROSTER)


def test_consent_to_one_key_is_none_to_another() -> None:
    kept = moved().body.move
    other = moved(recovery=bytes(HEIR.verify_key).hex()).body.model_copy(update={"move": kept})
    with pytest.raises(BadSignature):
        following_version(WITH_RECOVERY, sign(other, AUTHORITY_NAME, HEIR).encode(), ROSTER)


def test_a_recovery_key_that_no_version_names_moves_nothing() -> None:
    with pytest.raises(WrongManifest):
        following_version(CONSORTIUM, moved(by="recovery", consent=RECOVERY).encode(), ROSTER)
    body = moved().body.model_copy(
        update={"previous": CONSORTIUM.digest, "recovery": None, "move": None}
    )
    signature = RECOVERY.sign(move_message(body)).signature.hex()
    move = AuthorityMove(by="recovery", signature=signature)
    signed = sign(body.model_copy(update={"move": move}), AUTHORITY_NAME, HEIR)
    with pytest.raises(MalformedDocument, match="no recovery key"):
        following_version(CONSORTIUM, signed.encode(), ROSTER)


def test_a_later_roster_may_not_give_an_index_to_another_client() -> None:
    file = bytearray(CONSORTIUM.roster.encode())
    file[20:84] = file[52:84] + file[20:52]
    changed = Roster.decode(bytes(file))
    with pytest.raises(MalformedDocument, match="keep their holders"):
        follow(next_version(of=changed), changed.encode())
    shorter = roster(clients=10, revoked=())
    with pytest.raises(MalformedDocument, match="keep their holders"):
        follow(next_version(of=shorter), shorter.encode())


@pytest.mark.parametrize("kind", sorted(MAY_SIGN))
@pytest.mark.parametrize("party", PARTIES)
def test_only_the_party_in_charge_may_sign(kind: str, party: str) -> None:
    body = DOCUMENTS[kind].body
    if body.signer_field:
        body = body.model_copy(update={body.signer_field: party})
    signed = named(party, body)
    if party in MAY_SIGN[kind]:
        CONSORTIUM.verify(signed)
    else:
        with pytest.raises(WrongSigner):
            CONSORTIUM.verify(signed)


@pytest.mark.parametrize("kind", ["job_request", "holdings", "vote", "partial_sum", "abandonment"])
def test_a_party_speaks_only_for_itself(kind: str) -> None:
    body = DOCUMENTS[kind].body
    field = body.signer_field
    speaker = {"job_request": "second-analyst"}.get(kind, "compute-0")
    assert getattr(body, field) != speaker
    two_analysts = consortium(
        analysts=tuple(
            ListedParty(
                name=name,
                operator="x",
                verify_key=bytes(signing_key(name).verify_key).hex(),
            )
            for name in ("analyst", "second-analyst")
        )
    )
    bound = body.model_copy(update={"manifest": two_analysts.digest})
    with pytest.raises(WrongSigner, match="another party"):
        two_analysts.verify(named(speaker, bound))
    two_analysts.verify(named(speaker, bound.model_copy(update={field: speaker})))


def join_of(client: int) -> Membership:
    return Membership(manifest=CONSORTIUM.digest, job=JOB.digest, holder=client, state="joined")


def test_a_data_holder_signs_for_itself_only() -> None:
    CONSORTIUM.verify(sign(join_of(3), Role.HOLDER, client_key(3)))
    with pytest.raises(BadSignature):
        CONSORTIUM.verify(sign(join_of(3), Role.HOLDER, client_key(4)))
    with pytest.raises(WrongSigner):
        CONSORTIUM.verify(sign(join_of(3), "trainer", signing_key("trainer")))


def party(fields: Any, **changes: Any) -> dict[str, Any]:
    return fields.model_dump() | changes


MANIFEST = CONSORTIUM.manifest


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trainer": party(MANIFEST.trainer, name="aggregator")}, "names"),
        (
            {"trainer": party(MANIFEST.trainer, verify_key=MANIFEST.aggregator.verify_key)},
            "verify keys",
        ),
        (
            {
                "compute_nodes": [
                    MANIFEST.compute_nodes[0],
                    party(MANIFEST.compute_nodes[1], box_key=MANIFEST.compute_nodes[0].box_key),
                ]
            },
            "box keys",
        ),
        ({"compute_nodes": MANIFEST.compute_nodes[:1]}, "at least 2"),
        ({"analysts": []}, "at least 1"),
        ({"sequence": 2}, "first version"),
        ({"previous": "00" * 32}, "first version"),
        ({"sequence": 0}, "greater than"),
        ({"trainer": party(MANIFEST.trainer, name="authority")}, "may be named"),
        ({"trainer": party(MANIFEST.trainer, name="client")}, "may be named"),
        ({"trainer": party(MANIFEST.trainer, name="Trainer")}, "pattern"),
        ({"trainer": party(MANIFEST.trainer, name="trainer\n")}, "pattern"),
        ({"trainer": party(MANIFEST.trainer, url="http://trainer.example")}, "pattern"),
        ({"trainer": party(MANIFEST.trainer, url="https://trainer.example/path")}, "pattern"),
        ({"trainer": party(MANIFEST.trainer, url="https://trainer.example@evil")}, "pattern"),
        ({"trainer": party(MANIFEST.trainer, certificate="-----BEGIN")}, "pattern"),
        ({"trainer": party(MANIFEST.trainer, verify_key="AB" * 32)}, "pattern"),
        ({"policy": party(POLICY, minimum_cohort=1)}, "greater than"),
        ({"policy": party(POLICY, delta=1.0)}, "less than"),
        ({"policy": party(POLICY, maximum_epsilon=float("nan"))}, "finite"),
        ({"policy": party(POLICY, mechanisms=("gaussian",))}, "discrete_gaussian"),
        ({"policy": party(POLICY, queries=())}, "at least 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_manifest_that_contradicts_itself_is_refused(changes: Any, reason: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=reason):
        Manifest.model_validate(MANIFEST.model_dump() | changes)
