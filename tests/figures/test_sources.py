"""Files are found where they may be, fetched where they are not, and refused if they are others."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from figures import sources
from figures.sources import Files, Source, digest

CONTENT = b"fixed acidity;quality\n7.4;5\n"
FILE = "winequality-red.csv"


@pytest.fixture(autouse=True)
def small_wine(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Source(file=FILE, sha256=digest(CONTENT), archive="https://uci.test/a.zip", citation="")
    monkeypatch.setitem(sources.UCI, FILE, small)


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("closed", request=request)


def files(
    data: Path | None,
    cache: Path,
    answer: Callable[[httpx.Request], httpx.Response] = unreachable,
) -> Files:
    return Files(data=data, cache=cache, transport=httpx.MockTransport(answer))


def test_a_file_that_is_nowhere_is_fetched_once_and_kept(tmp_path: Path):
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr(FILE, CONTENT)
        return httpx.Response(200, content=archive.getvalue())

    looked = files(None, tmp_path / "cache", answer)
    assert looked.uci(FILE).read_bytes() == CONTENT
    assert looked.uci(FILE) == tmp_path / "cache" / "uci" / FILE
    assert asked == ["https://uci.test/a.zip"]
