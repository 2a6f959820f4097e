"""Where the figures' files come from: a directory, else the source itself.

Nothing of the data is carried by the project. UCI's files are pinned by their SHA-256, wherever
they come from.
"""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

_FETCH_SECONDS: Final = 60.0
_ADVICE: Final = "put {file} into a directory, and say DATA=directory"


class DataUnavailable(RuntimeError):
    """A file is missing or is not the one that is meant; the message says what to put where."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file of a UCI data set: its name, its digest, and the archive that UCI offers it in."""

    file: str
    sha256: str
    archive: str
    citation: str


_WINE: Final = (
    "Cortez, Cerdeira, Almeida, Matos, Reis (2009): Wine Quality. UCI Machine Learning Repository,"
    " doi:10.24432/C56S3T"
)
UCI: Final = {
    each.file: each
    for each in (
        Source(
            file="winequality-red.csv",
            sha256="4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
            archive="https://archive.ics.uci.edu/static/public/186/wine+quality.zip",
            citation=_WINE,
        ),
        Source(
            file="winequality-white.csv",
            sha256="76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
            archive="https://archive.ics.uci.edu/static/public/186/wine+quality.zip",
            citation=_WINE,
        ),
        Source(
            file="abalone.data",
            sha256="de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
            archive="https://archive.ics.uci.edu/static/public/1/abalone.zip",
            citation=(
                "Nash, Sellers, Talbot, Cawthorn, Ford (1994): Abalone. UCI Machine Learning"
                " Repository, doi:10.24432/C55C7W"
            ),
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Files:
    """Looks for files in `data`, its folders uci/ and gdsc/, and `cache`, where it puts others.

    `data` None: everything is fetched. `transport` stands in for the network, in tests.
    """

    data: Path | None
    cache: Path
    transport: httpx.BaseTransport | None = None

    def folders(self, name: str) -> list[Path]:
        """Return the directories that the files of `name`, uci or gdsc, may be in, in order."""
        given = [] if self.data is None else [self.data, self.data / name]
        return [each for each in (*given, self.cache / name) if each.is_dir()]

    def uci(self, file: str) -> Path:
        """Return the path of a UCI file, fetched if it is nowhere.

        Raises:
            DataUnavailable: it could not be fetched, or is another file of that name.
        """
        source = UCI[file]
        for folder in self.folders("uci"):
            if (folder / file).is_file():
                _refuse_other(source, (folder / file).read_bytes(), str(folder / file))
                return folder / file
        try:
            with zipfile.ZipFile(io.BytesIO(self.fetch(source.archive, file))) as archive:
                content = archive.read(file)
        except (zipfile.BadZipFile, KeyError) as error:
            advice = _ADVICE.format(file=file)
            raise DataUnavailable(f"{source.archive} holds no {file}: {advice}") from error
        _refuse_other(source, content, source.archive)
        path = self.cache / "uci" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def fetch(self, url: str, file: str) -> bytes:
        """Return what `url` answers with; `file` is what it is wanted for.

        Raises:
            DataUnavailable: nothing usable came.
        """
        try:
            with httpx.Client(
                transport=self.transport, timeout=_FETCH_SECONDS, follow_redirects=True
            ) as client:
                answer = client.get(url).raise_for_status()
        except httpx.HTTPError as error:
            raise DataUnavailable(
                f"{file} was in none of the directories looked in, and {url} could not be had"
                f" ({type(error).__name__}): {_ADVICE.format(file=file)}"
            ) from error
        return answer.content


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _refuse_other(source: Source, content: bytes, where: str) -> None:
    if digest(content) != source.sha256:
        raise DataUnavailable(
            f"{where} does not give UCI's {source.file}: its SHA-256 is {digest(content)}, not"
            f" {source.sha256}"
        )
