"""What a later release took and kept is read by the one before, and stays as it was signed."""

import pytest

from shoal_protocol.certificates.packing import read_certificate
from shoal_protocol.wire.documents import decode, read_kept
from shoal_protocol.wire.encoding import canonical_json, parse_canonical_json, sha256
from shoal_protocol.wire.errors import MalformedDocument, UnsupportedVersion
from tests.world.examples import CONSORTIUM, DOCUMENTS

SPEC = DOCUMENTS["round_spec"]


def test_fields_that_are_not_known_stay_in_what_is_encoded_hashed_and_signed() -> None:
    value = SPEC.to_json()
    value["body"]["note"] = "new"
    value["body"]["query"]["more"] = [1]
    encoded = canonical_json(value)
    with pytest.raises(MalformedDocument, match=r"is not known to release 1\.0"):
        decode(encoded, type(SPEC.body))
    kept = read_kept(encoded, type(SPEC.body))
    assert kept.body == SPEC.body
    assert kept.encode() == encoded
    assert kept.digest == sha256("round_spec", canonical_json(value["body"]))
    assert kept.digest != SPEC.digest


def test_documents_within_a_kept_one_are_read_so_too() -> None:
    certificate = DOCUMENTS["release_certificate"]
    value = certificate.to_json()
    within = value["body"]["totals"][0]["body"]
    within["note"] = "new"
    encoded = canonical_json(value)
    with pytest.raises(MalformedDocument):
        read_certificate(encoded)
    kept = read_certificate(encoded, kept=True)
    assert kept.encode() == encoded
    assert kept.body.totals[0].digest == sha256("job_total", canonical_json(within))
    assert kept.body.rounds == certificate.body.rounds  # type: ignore[attr-defined]


def test_a_kept_document_that_nothing_was_added_to_is_the_same_and_verifies() -> None:
    kept = read_kept(SPEC.encode(), type(SPEC.body))
    assert (kept, kept.digest) == (SPEC, SPEC.digest)
    CONSORTIUM.verify(kept)


@pytest.mark.parametrize("change", [{"version": 2}, {"deadline": None}, {"kind": "vote"}])
def test_what_is_known_is_checked(change: dict[str, object]) -> None:
    value = parse_canonical_json(SPEC.encode())
    value["body"] |= change
    with pytest.raises((MalformedDocument, UnsupportedVersion)):
        read_kept(canonical_json(value), type(SPEC.body))
