"""Cards go together into a manifest only if every role is filled and nobody appears twice."""

from datetime import UTC, datetime
from itertools import count

import pytest
from nacl.signing import SigningKey

from shoal_agent.client_files import Enrolment
from shoal_consortium.parties import enrol, first_manifest
from shoal_consortium.party_files import new_party, read_party_card
from shoal_kit.party import Card
from shoal_kit.startup import StartupRefused
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.roster_changes import roster_of, with_revoked

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(
    minimum_cohort=2,
    minimum_colluders=0,
    colluding_holders=0,
    minimum_holders=1,
    maximum_epsilon=1.0,
    delta=1e-5,
    mechanisms=("discrete_gaussian",),
    queries=("second_moments",),
    maximum_round_seconds=60,
)
AUTHORITY = SigningKey(b"a" * 32)
_numbers = count()


def counted(size: int) -> bytes:
    """Return bytes that no earlier call returned."""
    return next(_numbers).to_bytes(size, "big")


def card(role: str, name: str | None = None, operator: str | None = None) -> Card:
    return new_party(
        role,
        name=name or f"{role}-{next(_numbers)}",
        operator=operator or f"operator {next(_numbers)}",
        url=None if role == "analyst" else "https://127.0.0.1:8440",
        extra_hosts=[],
        now=NOW,
        valid_days=10,
        random_bytes=counted,
    ).card


def cards() -> list[Card]:
    return [card(role) for role in ("compute", "compute", "aggregator", "trainer", "analyst")]


def keys(number: int, first: int = 0) -> list[SigningKey]:
    return [SigningKey(index.to_bytes(32, "big")) for index in range(first, first + number)]


def roster(number: int) -> Roster:
    return roster_of((key.verify_key, 1) for key in keys(number))


def asking(number: int, slots: int = 1) -> Enrolment:
    return Enrolment.by(keys(1, first=number)[0], slots=slots)


def consortium(clients: int = 3) -> Consortium:
    held = roster(clients)
    signed = first_manifest("trial", cards(), roster=held, policy=POLICY, authority=AUTHORITY)
    return Consortium.pinned(signed.encode(), held.encode(), digest=signed.digest)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"role":"king"}', b'{"role":"analyst","name":"../x"}']
)
def test_what_is_no_card_is_refused(content, tmp_path) -> None:
    (tmp_path / "card.json").write_bytes(content)
    with pytest.raises(StartupRefused, match="not a party's card"):
        read_party_card(tmp_path / "card.json")


def test_no_private_key_is_in_a_card_or_in_the_representation_of_a_party() -> None:
    party = new_party(
        "compute",
        name="compute-0",
        operator="a",
        url="https://localhost",
        extra_hosts=[],
        now=NOW,
        valid_days=1,
        random_bytes=counted,
    )
    shown = party.card.model_dump_json() + repr(party)
    assert set(party.seeds) == {"signing", "box"}
    for seed in party.seeds.values():
        assert seed.hex() not in shown and repr(seed) not in shown


def test_a_revoked_client_is_not_enrolled_again_with_the_same_key() -> None:
    first = roster(3)
    later = with_revoked(first, [1])
    with pytest.raises(ValueError, match="revoked or replaced, which is for good"):
        enrol(later, [asking(1)], earlier=[first, later])
    assert len(enrol(later, [asking(7)], earlier=[first, later])) == 4


def test_a_data_holder_that_asks_for_more_slots_gets_those_that_it_lacks() -> None:
    grown = enrol(roster(3), [asking(1, slots=4), asking(5, slots=2)])
    assert list(grown.slots_of(1)) == [1, 3, 4, 5]
    assert list(grown.slots_of(3)) == [6, 7]
    assert grown.follows(roster(3))
