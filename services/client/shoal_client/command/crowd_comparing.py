"""`shoal crowd compare`: whether several parties were shown the same crowd; it asks nobody."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import pydantic
import typer

from shoal_client.command.connection import ConsortiumDirectory, PartyDirectory, open_book
from shoal_client.command.inputs import read_file
from shoal_client.command.terminal import ExitStatus, fail, say
from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.documents import describe
from shoal_protocol.draw_and_discard.evidence import (
    CrowdEvidence,
    differences,
    read_fingerprint,
)
from shoal_protocol.encoding import canonical_json
from shoal_protocol.errors import ProtocolError
from shoal_protocol.manifest import Consortium

_MISTYPED: Final = 4  # digits of a fingerprint, at most


def compare(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Evidence of two parties or more: `shoal agent evidence`, `crowd verify --out`."
        ),
    ],
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
) -> None:
    """Compare what several parties were shown of one crowd job, offline.

    The first file that has a closing is what the others are held to. The party's pin says which
    trainer's signatures count.

    Exit status 3: somebody was shown another crowd, or what was kept does not fit the closing; 1: a
    file was damaged or edited, which says nothing of the trainer.
    """
    if len(files) < 2:
        raise typer.BadParameter("it takes two files or more")
    read = {str(each): read_evidence(each) for each in files}
    first = next((name for name, each in read.items() if each.closing is not None), str(files[0]))
    reference = read.pop(first)
    bound_to = open_book(party, consortium).get(reference.opening.body.manifest)
    for name, each in {first: reference, **read}.items():
        _check(name, each, bound_to)
    tell_fingerprints(reference)
    own = differences(reference, {first: reference}, bound_to)
    tell_differences(own | differences(reference, read, bound_to), len(files))


def read_evidence(path: Path) -> CrowdEvidence:
    """Return evidence that was written to a file.

    Raises:
        ValueError: it is none, or was damaged or edited.
    """
    try:
        return CrowdEvidence.model_validate(json.loads(read_file(path)))
    except pydantic.ValidationError as error:
        raise ValueError(f"{path} holds no evidence: {describe(error, CrowdEvidence)}") from None
    except ProtocolError:
        raise _edited(str(path)) from None
    except ValueError:
        raise ValueError(f"{path} holds no evidence: it is no JSON") from None


def _check(name: str, shown: CrowdEvidence, consortium: Consortium) -> None:
    """Raise ValueError if the trainer did not sign what a file holds."""
    try:
        shown.check(consortium)
    except ProtocolError:
        raise _edited(name) from None


def _edited(name: str) -> ValueError:
    return ValueError(
        f"{name} is not what the trainer signed: the file was damaged or edited, or is of another "
        "consortium, and proves nothing; have it written again"
    )


def write_evidence(path: Path, shown: CrowdEvidence) -> None:
    """Write evidence to a new file.

    Raises:
        OSError: there is one, or it cannot be written.
    """
    with path.open("xb") as file:
        file.write(canonical_json(shown.model_dump(mode="json")))


def compared(
    own: CrowdEvidence, given: Sequence[str], consortium: Consortium
) -> dict[str, list[str]]:
    """Say which of `given`, fingerprints or files, show another crowd than we were shown.

    Raises:
        ValueError: one is neither a fingerprint nor a file of evidence, or seems mistyped.
    """
    files = {each: read_evidence(Path(each)) for each in given if Path(each).is_file()}
    for name, shown in files.items():
        _check(name, shown, consortium)
    found = differences(own, files, consortium)
    for each in given:
        if each not in files and (read := read_fingerprint(each)) not in own.fingerprints:
            if any(_is_nearly(read, shown) for shown in own.fingerprints):
                raise ValueError(f"{each} seems mistyped: all but a few of its digits are right")
            found[each] = ["is the fingerprint of neither the opening nor the closing here"]
    return found


def _is_nearly(given: str, shown: str) -> bool:
    """Tell whether two fingerprints differ by so little that no other document explains it."""
    return sum(a != b for a, b in zip(given, shown, strict=True)) <= _MISTYPED


def hold_to(
    own: CrowdEvidence,
    given: Sequence[str],
    *,
    out: Path | None,
    book: ManifestBook,
    quiet: bool,
) -> None:
    """Write and print what we were shown, and end the command if others saw another crowd.

    Raises:
        ValueError: as `compared`.
        OSError: as `write_evidence`.
    """
    if out is not None:
        write_evidence(out, own)
    if not quiet:
        tell_fingerprints(own)
    if given:
        found = compared(own, given, book.get(own.opening.body.manifest))
        tell_differences(found, 1 + len(given), quiet=quiet)


def tell_fingerprints(shown: CrowdEvidence) -> None:
    """Print what is to be compared with other parties."""
    for what, each in zip(("Opening", "Closing"), shown.fingerprints, strict=False):
        say(f"{what}: {each}")


def tell_differences(
    found: Mapping[str, Sequence[str]], parties: int, *, quiet: bool = False
) -> None:
    """Say that all saw the same crowd, or end the command by who saw another one."""
    if found:
        said = "; ".join(f"{name}: {each}" for name, several in found.items() for each in several)
        fail(f"not the same crowd: {said}", ExitStatus.REFUSED)
    if not quiet:
        say(f"All {parties:,} were shown the same crowd.")
