"""A party is told of its certificate's end and of its retirement, and erases what was replaced."""

import os
import re
import secrets
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from shoal_consortium import parties, party_files
from shoal_consortium.party_files import KeyKind, read_party_card, read_signing_key
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.party import KeyNotHere, load_party
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.succession import following_version
from shoal_service.standing import Standing
from tests.world.clock import NOW
from tests.world.trust import Trust, make_trust

VALID = timedelta(days=365)


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return make_trust(tmp_path / "trust", now=NOW)  # certificates of 30 days


def rotate(trust: Trust, name: str, *kinds: KeyKind) -> Consortium:
    party_files.rotate(
        trust.directory / "parties" / name,
        kinds,
        url=None,
        extra_hosts=[],
        now=NOW,
        valid_days=VALID.days,
        random_bytes=secrets.token_bytes,
    )
    return change(trust, cards=[read_party_card(trust.directory / "parties" / name)])


def change(trust: Trust, **how: object) -> Consortium:
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    signed = parties.changed([trust.consortium], authority=key, **how)  # type: ignore[arg-type]
    return following_version(trust.consortium, signed.encode(), trust.consortium.roster.encode())


class At:
    """A party at a time that is moved by hand."""

    def __init__(self, trust: Trust, name: str, data: Path) -> None:
        self.home, self.now = trust.directory / "parties" / name, NOW
        self.book = ManifestBook(trust.consortium, data)
        self.registry = CollectorRegistry()
        self.is_busy = False
        self.standing = Standing(load_party(self.home), self.book, lambda: self.now, self.registry)

    async def busy(self) -> bool:
        return self.is_busy

    def accept(self, version: Consortium) -> None:
        self.book.accept(version.signed_manifest.encode(), version.roster.encode())

    @property
    def days_left(self) -> float | None:
        return self.registry.get_sample_value("shoal_certificate_days_left")


async def test_the_end_of_a_certificate_is_told_for_sixty_days_once_a_day(
    trust: Trust, tmp_path: Path
) -> None:
    at = At(trust, "trainer", tmp_path)
    at.accept(rotate(trust, "trainer", "tls"))
    at.now = NOW + VALID - timedelta(days=61)
    with capture_logs() as lines:
        at.standing.look()
    assert lines == [] and await at.standing.told(at.busy) == {}
    assert at.days_left == 61
    at.now += timedelta(days=2)
    with capture_logs() as lines:
        at.standing.look()
        at.standing.look()
        at.now += timedelta(days=1)
        at.standing.look()
    assert re.findall("ends in (..) days", str(lines)) == ["59", "58"]
    assert "ends in 58 days" in (await at.standing.told(at.busy))["certificate"]


async def test_an_operator_is_asked_for_a_new_box_key_once_the_one_in_force_is_old(
    trust: Trust, tmp_path: Path
) -> None:
    at = At(trust, "compute-1", tmp_path)
    at.standing.box_key_lifetime = timedelta(days=7)
    made = (NOW - timedelta(days=6)).timestamp()
    os.utime(at.home / "box.key", (made, made))
    assert "box_key" not in await at.standing.told(at.busy)
    at.now += timedelta(days=1)
    with capture_logs() as lines:
        at.standing.look()
    assert "shoal party rotate --box" in lines[-1]["event"]
    told = await at.standing.told(at.busy)
    assert told["box_key"].startswith("is 7 days old: run `shoal party rotate --box`")

    second = rotate(trust, "compute-1", "box")
    os.utime(at.home / "box-2.key", (at.now.timestamp(),) * 2)
    assert "box_key" in await at.standing.told(at.busy), "the new one is not in force yet"
    at.accept(second)
    assert "box_key" not in await at.standing.told(at.busy)


async def test_a_retired_party_is_told_when_it_may_be_switched_off(
    trust: Trust, tmp_path: Path
) -> None:
    at = At(trust, "compute-2", tmp_path)
    at.accept(change(trust, retired=["compute-2"]))
    at.is_busy = True
    assert "serves what is open" in (await at.standing.told(at.busy))["party"]
    at.is_busy = False
    assert "may be switched off" in (await at.standing.told(at.busy))["party"]


def test_replaced_box_and_tls_keys_are_erased_once_no_open_round_needs_them(
    trust: Trust, tmp_path: Path
) -> None:
    at, first = At(trust, "compute-1", tmp_path), trust.consortium
    second = rotate(trust, "compute-1", "signing", "box", "tls")
    at.standing.erase({first.digest})
    assert (at.home / "box-2.key").exists(), "it is not in force yet"
    at.accept(second)
    at.standing.erase({first.digest})
    assert (at.home / "box.key").exists(), "a round may need it"
    at.standing.erase(())
    left = {path.name for path in at.home.glob("*.key")}
    assert left == {"signing.key", "signing-2.key", "box-2.key", "tls-2.key"}
    again = load_party(at.home)
    assert again.signing_key_in(first) and again.box_key_in(second)
    with pytest.raises(KeyNotHere):
        again.box_key_in(first)
