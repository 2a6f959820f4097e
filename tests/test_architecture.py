"""The import rules of the source tree: who may know of whom, and what the protocol may touch."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "shoal_protocol": ROOT / "protocol/shoal_protocol",
    **{
        f"shoal_{name}": ROOT / f"services/{name}/shoal_{name}"
        for name in ("hosting", "client", "compute", "aggregator", "trainer")
    },
    "shoal_learning": ROOT / "learning/shoal_learning",
    "shoal_redteam": ROOT / "redteam/shoal_redteam",
}
MAY_IMPORT = {
    "shoal_protocol": {"shoal_protocol"},
    "shoal_hosting": {"shoal_hosting", "shoal_protocol"},
    **{
        name: {name, "shoal_hosting", "shoal_protocol"}
        for name in ("shoal_client", "shoal_compute", "shoal_aggregator")
    },
    "shoal_trainer": {"shoal_trainer", "shoal_hosting", "shoal_learning", "shoal_protocol"},
    "shoal_learning": {"shoal_learning", "shoal_protocol"},
    # it plays clients with the SDK's own pieces, and looks at services from outside only
    "shoal_redteam": {"shoal_redteam", "shoal_client", "shoal_hosting", "shoal_protocol"},
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
# The wheel's own modules that must load without the `agent` extra.
WITHOUT_THE_AGENT_EXTRA = (
    "__init__",
    "answer_heads",
    "connections",
    "digested_imports",
    "exchange",
    "installed_models",
    "lines",
    "manifest_book",
    "party",
    "security",
    "settings",
)
# What tells requests and answers apart, and stands in for the network; none of it asks anybody.
NAMED_OF_HTTPX = {
    f"httpx.{name}"
    for name in (
        *("AsyncBaseTransport", "AsyncByteStream", "Request", "Response", "Headers", "URL"),
        *("TransportError", "HTTPError", "ConnectError", "ReadError"),
        *("RemoteProtocolError", "LocalProtocolError"),
    )
}
REACHING = {"open_connection", "create_connection", "handle_async_request"}
MAY_ASK = {
    "shoal_hosting.exchange": {"self._transport.handle_async_request"},
    "shoal_hosting.lines": {"loop.create_connection"},
    "shoal_hosting.probe": {"http.client"},  # of the service beside it
    "shoal_client.metering": {"transport.handle_async_request"},  # on its way from an exchange
}
AGENT_EXTRA = {"fastapi", "httptools", "prometheus_client", "starlette", "structlog", "uvicorn"}


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


def foreign_imports(package: str, source: str) -> set[str]:
    """Return the packages of ours that `source`, in `package`, imports but may not."""
    return {name for name in top_levels(source) if name.startswith("shoal_")} - MAY_IMPORT[package]


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
    names = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Attribute)
    }
    of_httpx = {
        name
        for name in names | modules_imported_by(source)
        if name.startswith("httpx.") and name not in NAMED_OF_HTTPX
    }
    other = {name for name in names if name.rpartition(".")[2] in REACHING}
    return of_httpx | other | (modules_imported_by(source) & {"http.client", "urllib.request"})


def identify(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


SOURCES = list(sources())


def test_every_package_has_been_found() -> None:
    assert {package for package, _ in SOURCES} == set(PACKAGES)


@pytest.mark.parametrize(("package", "path"), SOURCES, ids=identify)
def test_a_package_imports_only_itself_the_protocol_and_hosting(package: str, path: Path) -> None:
    assert foreign_imports(package, path.read_text()) == set()


@pytest.mark.parametrize(
    "path", [path for package, path in SOURCES if package == "shoal_protocol"], ids=identify
)
def test_the_protocol_touches_nothing_outside_its_arguments(path: Path) -> None:
    assert impurities(path.read_text()) == set()


@pytest.mark.parametrize(("package", "path"), SOURCES, ids=identify)
def test_no_module_has_grown_past_three_hundred_lines(package: str, path: Path) -> None:
    assert len(path.read_text().splitlines()) < 300


@pytest.mark.parametrize(("package", "path"), SOURCES, ids=identify)
def test_every_module_opens_by_saying_what_it_knows(package: str, path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "needs a sentence at its top"


@pytest.mark.parametrize(("package", "path"), SOURCES, ids=identify)
def test_there_is_one_way_to_ask_another_service(package: str, path: Path) -> None:
    assert ways_to_ask(path.read_text()) <= MAY_ASK.get(f"{package}.{path.stem}", set())


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


@pytest.mark.parametrize("name", WITHOUT_THE_AGENT_EXTRA)
def test_what_the_library_needs_of_hosting_loads_without_the_agent_extra(name: str) -> None:
    source = (PACKAGES["shoal_hosting"] / f"{name}.py").read_text()
    assert top_levels(source) & AGENT_EXTRA == set()
    ours = {full for full in modules_imported_by(source) if full.startswith("shoal_hosting.")}
    assert {full.split(".")[1] for full in ours} <= set(WITHOUT_THE_AGENT_EXTRA)


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("shoal_client", "import shoal_compute"),
        ("shoal_compute", "from shoal_trainer.jobs import Released"),
        ("shoal_hosting", "import shoal_client.policy"),
        ("shoal_client", "import shoal_redteam.command"),
        ("shoal_redteam", "from shoal_compute.store import keep"),
        ("shoal_protocol", "from shoal_hosting import problems"),
        ("shoal_trainer", "def late() -> None:\n    import shoal_aggregator"),
    ],
)
def test_a_planted_foreign_import_is_found(package: str, line: str) -> None:
    assert foreign_imports(package, line) != set()


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
