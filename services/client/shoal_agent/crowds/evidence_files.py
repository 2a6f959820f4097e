"""Reads, writes and compares evidence files: a crowd job's documents as one party saw them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pydantic

from shoal_protocol.crowds.evidence import CrowdEvidence, differences, read_fingerprint
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import ProtocolError

_MISTYPED: Final = 4  # digits of a fingerprint, at most


def fingerprints_in_words(shown: CrowdEvidence) -> list[str]:
    """Return the fingerprints to compare with other parties, in words."""
    kinds = ("Opening", "Closing")
    return [f"{kind}: {each}" for kind, each in zip(kinds, shown.fingerprints, strict=False)]


def write_evidence(path: Path, shown: CrowdEvidence) -> None:
    """Write evidence to a new file.

    Raises:
        OSError: there is one, or it cannot be written.
    """
    with path.open("xb") as file:
        file.write(canonical_json(shown.model_dump(mode="json")))


def read_evidence(name: str, content: bytes) -> CrowdEvidence:
    """Return the evidence in a file of that name.

    Raises:
        ValueError: it is none, or was damaged or edited.
    """
    try:
        return CrowdEvidence.model_validate(json.loads(content))
    except pydantic.ValidationError as error:
        raise ValueError(f"{name} holds no evidence: {describe(error, CrowdEvidence)}") from None
    except ProtocolError:
        raise _edited(name) from None
    except ValueError:
        raise ValueError(f"{name} holds no evidence: it is no JSON") from None


def check_evidence(name: str, shown: CrowdEvidence, consortium: Consortium) -> None:
    """Raise ValueError if the trainer did not sign what a file holds."""
    try:
        shown.check(consortium)
    except ProtocolError:
        raise _edited(name) from None


def compared(
    own: CrowdEvidence,
    files: dict[str, CrowdEvidence],
    fingerprints: Sequence[str],
    consortium: Consortium,
) -> dict[str, list[str]]:
    """Say which files and fingerprints show another crowd than `own`.

    Raises:
        ValueError: a file was edited, or what should be a fingerprint is none or seems mistyped.
    """
    for name, shown in files.items():
        check_evidence(name, shown, consortium)
    found = differences(own, files, consortium)
    for each in fingerprints:
        if (read := read_fingerprint(each)) not in own.fingerprints:
            if any(_is_nearly(read, shown) for shown in own.fingerprints):
                raise ValueError(f"{each} seems mistyped: all but a few of its digits are right")
            found[each] = ["is the fingerprint of neither the opening nor the closing here"]
    return found


def _is_nearly(given: str, shown: str) -> bool:
    """Tell whether two fingerprints differ so little that one must be a typing mistake."""
    return sum(a != b for a, b in zip(given, shown, strict=True)) <= _MISTYPED


def _edited(name: str) -> ValueError:
    return ValueError(
        f"{name} is not what the trainer signed: the file was damaged or edited, or is of another "
        "consortium, and proves nothing; have it written again"
    )
