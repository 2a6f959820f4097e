"""Rules of the source tree that import contracts cannot say: purity, and one way to ask."""

import ast
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("protocol", "services", "studies", "analysis", "consortium", "command", "redteam")
PACKAGES = {
    path.parent.name: path.parent
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("py.typed"))
}
# Whatever reaches the network, the disk, the clock, other threads or a source of randomness.
NOT_IN_THE_PROTOCOL = {
    *("aiohttp", "fastapi", "httpx", "requests", "socket", "ssl", "starlette", "urllib", "uvicorn"),
    *("io", "os", "pathlib", "shutil", "sqlalchemy", "sqlite3", "sys", "tempfile"),
    *("calendar", "sched", "time", "zoneinfo"),
    *("opendp", "random", "secrets", "uuid"),
    *("asyncio", "concurrent", "multiprocessing", "subprocess", "threading"),
    *("logging", "structlog", "warnings"),
}
# Names that would let the same things in by another door.
NOT_NAMED_IN_THE_PROTOCOL = {"open", "print", "input", "eval", "exec", "__import__", "breakpoint"}
# What tells requests and answers apart, and stands in for the network; none of it asks anybody.
NAMED_OF_HTTPX = {
    f"httpx.{name}"
    for name in (
        *("AsyncBaseTransport", "AsyncByteStream", "Request", "Response", "Headers", "URL"),
        *("TransportError", "HTTPError", "ConnectError", "ConnectTimeout", "ReadTimeout"),
        *("ProxyError", "RemoteProtocolError", "InvalidURL"),
    )
}
REACHING = {"open_connection", "create_connection", "handle_async_request"}
MAY_ASK = {
    "shoal_kit.peers.exchange": {
        "self._transport.handle_async_request",
        "httpx.AsyncHTTPTransport",
        "httpx.Limits",
        "httpx.Proxy",
    },
    "shoal_kit.probe": {"http.client"},  # of the service beside it
}


def modules_imported_by(source: str) -> set[str]:
    """Return the full dotted name of every module that `source` may import, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def top_levels(source: str) -> set[str]:
    return {name.partition(".")[0] for name in modules_imported_by(source)}


def impurities(source: str) -> set[str]:
    """Return what `source` uses of the outside world."""
    modules = top_levels(source) & NOT_IN_THE_PROTOCOL
    calls = {
        node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and node.id in NOT_NAMED_IN_THE_PROTOCOL
    }
    # A generator that is an argument is named by its type; nothing else of the module is needed.
    without_types = source.replace("np.random.Generator", "Generator")
    dotted = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(without_types))
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "utcnow", "today", "random"}  # to spell out every one takes long
        and ast.unparse(node).endswith(
            (".now", ".utcnow", ".today", "np.random", "numpy.random", "nacl.utils.random")
        )
    }
    return modules | calls | dotted


def sources() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            yield package, path


def ways_to_ask(source: str) -> set[str]:
    """Return what `source` names that reaches another service."""
    imported = modules_imported_by(source)
    names: set[str] = set()
    if any(word in source for word in ("httpx", *REACHING)):  # else none of the names can be one
        names = {
            ast.unparse(node)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Attribute)
        }
    of_httpx = {
        name
        for name in names | imported
        if name.startswith("httpx.") and name not in NAMED_OF_HTTPX
    }
    other = {name for name in names if name.rpartition(".")[2] in REACHING}
    return of_httpx | other | (imported & {"http.client", "urllib.request"})


def module_of(path: Path) -> str:
    package = next(each for each in path.parents if each in PACKAGES.values())
    return ".".join(path.relative_to(package.parent).with_suffix("").parts)


SOURCES = {path: path.read_text() for _, path in sources()}


def offences(
    found: Callable[[Path, str], Collection[str] | bool], within: str = ""
) -> dict[str, str]:
    """Return what `found` says of each module below the package `within` that it does not pass."""
    return {
        str(path.relative_to(ROOT)): str(offence)
        for package, path in sources()
        if package.startswith(within) and (offence := found(path, SOURCES[path]))
    }


def test_every_package_is_held_by_the_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert set(PACKAGES) == set(contracts["root_packages"])


def test_the_protocol_touches_nothing_outside_its_arguments() -> None:
    assert offences(lambda _, source: impurities(source), "shoal_protocol") == {}


def test_studies_touch_nothing_outside_their_arguments_but_draw_from_generators() -> None:
    """What a learner draws follows from its sums, so that a replay gives the same."""

    def others(path: Path, source: str) -> set[str]:
        return set() if path.name == "replay.py" else impurities(source) - {"np.random"}

    assert offences(others, "shoal_studies") == {}


def test_every_module_opens_by_saying_what_it_does() -> None:
    assert offences(lambda _, source: not ast.get_docstring(ast.parse(source))) == {}


def test_there_is_one_way_to_ask_another_service() -> None:
    def others(path: Path, source: str) -> set[str]:
        return ways_to_ask(source) - MAY_ASK.get(module_of(path), set())

    assert offences(others) == {}


def circle(imported: Mapping[str, Set[str]]) -> list[str]:
    """Return modules that import one another, the first again at the end; none if there are none.

    A package may name its parts: that a part names its package back, which loads it, is no circle.
    """
    others = {
        module: {name for name in names if not module.startswith(f"{name}.")}
        for module, names in imported.items()
    }
    try:
        TopologicalSorter(others).prepare()
    except CycleError as error:
        modules: list[str] = error.args[1]
        return modules
    return []


def test_no_modules_import_one_another_not_even_for_their_types() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert circle(imported) == []


def test_a_planted_circle_is_found() -> None:
    imported = {"a.b": {"a.c"}, "a.c": {"d"}, "d": {"a.b"}}
    assert set(circle(imported)) == set(imported)
    assert circle({"a": {"a.b"}, "a.b": {"a"}, "d": {"a.b"}}) == []


@pytest.mark.parametrize(
    "line",
    [
        "client = httpx.AsyncClient()",
        "httpx.get(url)",
        "transport = httpx.AsyncHTTPTransport()",
        "from httpx import Client",
        "import http.client",
        "from urllib.request import urlopen",
        "await asyncio.open_connection(host, port)",
        "await loop.create_connection(protocol)",
        "await transport.handle_async_request(request)",
    ],
)
def test_a_planted_way_to_ask_is_found(line: str) -> None:
    source = f"async def ask() -> None:\n    {line}"
    assert ways_to_ask(source) != set()


@pytest.mark.parametrize(
    "line",
    [
        "import httpx",
        "import os.path",
        "from time import monotonic",
        "def late() -> None:\n    import secrets",
        "from concurrent.futures import ThreadPoolExecutor",
        "open('records.csv')",
        "datetime.now(UTC)",
        "np.random.default_rng(1)",
        "nacl.utils.random(32)",
    ],
)
def test_a_planted_impurity_is_found(line: str) -> None:
    assert impurities(line) != set()


def test_a_generator_handed_in_is_no_impurity() -> None:
    assert impurities("def sample(generator: np.random.Generator) -> None: ...") == set()
