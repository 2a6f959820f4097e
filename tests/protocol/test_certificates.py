"""Certificates that hold: of one round and two, additive and threshold, over manifest versions."""

from dataclasses import replace

import pytest

from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import read_certificate
from tests.world import examples
from tests.world.certified import MAKINGS, TWO_ROUNDS, Making, handed_over


@pytest.mark.parametrize("name", MAKINGS)
def test_an_honest_certificate_holds_under_its_manifest(name: str) -> None:
    making = MAKINGS[name]
    verified = verify_certificate(making.encode(), making.manifest)
    assert verified.parties.digest == making.of_round(len(making.queries) - 1).digest
    assert len(verified.certificate.rounds) == len(making.queries)


@pytest.mark.parametrize("name", MAKINGS)
def test_a_certificate_is_read_back_as_it_was_written(name: str) -> None:
    encoded = MAKINGS[name].encode()
    assert read_certificate(encoded).encode() == encoded


def test_the_same_job_gives_the_same_certificate_to_the_last_byte() -> None:
    assert Making().encode() == Making().encode()


def test_a_threshold_certificate_rests_on_the_sums_that_there_are() -> None:
    making = MAKINGS["threshold, two of three sums"]
    (certified,) = verify_certificate(making.encode(), making.manifest).certificate.rounds
    assert [each.signer for each in certified.partial_sums] == ["compute-0", "compute-2"]


def test_a_job_that_spanned_two_manifests_carries_the_earlier_one() -> None:
    making = MAKINGS["manifest changed between the rounds"]
    verified = verify_certificate(making.encode(), making.manifest)
    (earlier,) = verified.certificate.earlier_manifests
    assert earlier.digest == making.of_round(0).digest
    assert verified.signer(verified.certificate.rounds[0].spec).name == "trainer"
    assert set(verified.versions) == {each.digest for each in making.consortia}


def test_a_job_goes_on_under_the_heir_to_whom_an_authority_handed_over_its_key() -> None:
    later = handed_over(examples.CONSORTIUM, examples.signing_key("heir"))
    making = replace(TWO_ROUNDS, consortia=(examples.CONSORTIUM, later))
    assert verify_certificate(making.encode(), making.manifest).parties.digest == later.digest
