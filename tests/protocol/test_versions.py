"""Fields of a minor version wait for the manifest; files say whose programs use them."""

import pydantic
import pytest

from shoal_protocol.rounds.attestations import Vote
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Model, Signed, added_in, decode, sign
from shoal_protocol.wire.errors import MalformedDocument, UnsupportedVersion
from shoal_protocol.wire.versions import steps, usable_by
from tests.world.examples import CONSORTIUM, DOCUMENTS, POLICY, consortium, signing_key


class Part(Model):
    size: int
    unit: str | None = added_in(2)


class NextVote(Vote):
    """A vote as later releases might have it."""

    note: str | None = added_in(1)
    part: Part | None = added_in(1)
    parts: tuple[Part, ...] | None = added_in(1)


ALLOWING = {
    minor: consortium(policy=POLICY.model_copy(update={"wire_minor": minor})) for minor in (1, 2)
} | {0: CONSORTIUM}


def vote(manifest: Consortium, **added: object) -> Signed[NextVote]:
    fields = DOCUMENTS["vote"].body.model_dump() | {"manifest": manifest.digest} | added
    body = NextVote.model_validate(fields)
    return sign(body, body.node, signing_key(body.node))


@pytest.mark.parametrize(
    ("added", "needed"),
    [
        ({}, 0),
        ({"note": None}, 0),
        ({"note": "new"}, 1),
        ({"part": {"size": 1}}, 1),
        ({"part": {"size": 1, "unit": "mg"}}, 2),
        ({"parts": [{"size": 1}, {"size": 1, "unit": "mg"}]}, 2),
    ],
)
def test_a_field_waits_for_the_manifest_to_allow_it(added: dict[str, object], needed: int) -> None:
    for minor, manifest in ALLOWING.items():
        signed = vote(manifest, **added)
        if minor >= needed:
            manifest.verify(signed)
        else:
            with pytest.raises(
                UnsupportedVersion, match=rf"uses version 1\.{needed} .* 1\.{minor}$"
            ):
                manifest.verify(signed)


def test_a_release_before_reads_what_uses_no_new_field_and_says_why_it_reads_no_other() -> None:
    plain = vote(CONSORTIUM)
    CONSORTIUM.verify(decode(plain.encode(), Vote))
    assert plain.encode() == DOCUMENTS["vote"].encode()
    with pytest.raises(MalformedDocument, match=r"^\*: is not known to release 1\.0$"):
        decode(vote(CONSORTIUM, note="new").encode(), Vote)


def test_a_manifest_that_allows_what_this_release_lacks_is_read() -> None:
    manifest = ALLOWING[2]
    assert (
        Consortium.pinned(
            manifest.signed_manifest.encode(), manifest.roster.encode(), digest=manifest.digest
        ).manifest.policy.wire_minor
        == 2
    )
    for wrong in (0, 256, 1.5):
        with pytest.raises(pydantic.ValidationError):
            type(POLICY).model_validate(POLICY.model_dump() | {"wire_minor": wrong})


@pytest.mark.parametrize(
    ("found", "version", "migrations", "lacking"),
    [
        ([3], 3, [], []),
        ([3], 5, [4, 5], [4, 5]),
        ([3, 4, 5], 4, [4], []),  # the program before
        ([3, 4, 5], 6, [4, 5, 6], [6]),
        ([4, 5], 3, [], None),  # a later release cut off the ones before
        ([3], 5, [5], None),
        ([], 3, [2, 3], None),
    ],
)
def test_what_a_file_lacks_for_a_program(
    found: list[int], version: int, migrations: list[int], lacking: list[int] | None
) -> None:
    if lacking is None:
        with pytest.raises(ValueError, match=f"needs {version}; run the release that made it"):
            steps(found, version, migrations)
    else:
        assert steps(found, version, migrations) == lacking


def test_a_new_file_is_used_by_all_versions_that_migrations_lead_from() -> None:
    assert usable_by(5, [4, 5]) == [3, 4, 5]
    assert usable_by(5, [3, 5]) == [4, 5]
    assert usable_by(5, []) == [5]
