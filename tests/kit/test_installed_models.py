"""Installed models: found without being imported, loaded only if their sources are those meant."""

import importlib
import py_compile
import sys

import pytest

from shoal_kit import installed_models
from shoal_kit.installed_models import (
    ModelNotUsable,
    digest_of,
    gradients_for,
    refusal,
)
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.variational import NumpyroTask
from tests.world.installed_models import install

COLUMN = ColumnBounds(name="y", lower=0.0, upper=1.0)
SOURCE = """
import numpyro
import numpyro.distributions as dist

def model(record):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=record["y"])

number = 3
"""
EXPLODES = "raise RuntimeError('imported')\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that packages are installed in, gone afterwards with all that was imported."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installed_models, "_loaded", {})
    installed_models.model_for.cache_clear()
    yield tmp_path
    installed_models.model_for.cache_clear()
    for name in set(sys.modules) - before:
        if name.partition(".")[0].startswith("tried_"):
            del sys.modules[name]


def refusal_of(task):
    """Return why a round of the task is refused, wherever its gradient is to be taken."""
    return refusal(task.gradient_query([0.0] * task.model.dimension(len(task.columns))))


def task(name, digest, unconstrained=1):
    return NumpyroTask(
        entry_point=name,
        digest=digest,
        unconstrained=unconstrained,
        columns=(COLUMN,),
        rounds=2,
        batch=None,
    )


def test_a_digest_is_found_without_importing_anything(site):
    install(
        site,
        "tried_a",
        {"tried_a/__init__.py": EXPLODES, "tried_a/m.py": SOURCE},
        a="tried_a.m:model",
    )
    assert len(digest_of("a")) == 64
    assert "tried_a" not in sys.modules


def test_every_source_of_the_package_counts_and_nothing_else_does(site):
    files = {"tried_b/__init__.py": "", "tried_b/m.py": SOURCE, "tried_b/inner/other.py": "x = 1\n"}
    install(site, "tried_b", files, b="tried_b.m:model")
    first = digest_of("b")
    (site / "tried_b/notes.txt").write_text("no code")
    (site / "tried_b/__pycache__").mkdir()
    for compiled in ("__pycache__/m.cpython-311.pyc", "fast.abi3.so", "hidden.pyc"):
        (site / "tried_b" / compiled).write_bytes(b"compiled")
    assert digest_of("b") == first
    (site / "tried_b/inner/other.py").write_text("x = 2\n")
    assert digest_of("b") != first
    (site / "tried_b/inner/other.py").rename(site / "tried_b/inner/renamed.py")
    (site / "tried_b/inner/renamed.py").write_text("x = 1\n")
    assert digest_of("b") != first


def test_what_runs_are_the_sources_that_were_digested_and_no_compiled_code_beside_them(site):
    files = {
        "tried_q/__init__.py": "",
        "tried_q/m.py": "def model(record):\n    from tried_q.later import said\n    return said\n",
        "tried_q/later.py": "said = 'compiled'\n",
    }
    install(site, "tried_q", files, q="tried_q.m:model")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(site / "tried_q/later.py"), invalidation_mode=unchecked, doraise=True)
    (site / "tried_q/later.py").write_text("said = 'source'\n")
    model = installed_models._load("q", digest_of("q"))
    (site / "tried_q/later.py").write_text("said = 'exchanged'\n")
    assert model({}) == "source"


def linked(package):
    elsewhere = package.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "__init__.py").write_text(EXPLODES)
    (package / "more").symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (lambda package: (package / "more.py").write_text(EXPLODES), "not digested"),
        (linked, "not digested"),
        (lambda package: (package / "more.abi3.so").write_bytes(b"compiled"), "compiled code"),
        (lambda package: (package / "more.pyc").write_bytes(b"compiled"), "compiled code"),
    ],
    ids=["added", "linked", "compiled", "bytecode"],
)
def test_nothing_but_digested_sources_runs(site, put, said):
    source = "def model(record):\n    import tried_r.more\n"
    install(site, "tried_r", {"tried_r/__init__.py": source}, r="tried_r:model")
    model = installed_models._load("r", digest_of("r"))
    put(site / "tried_r")
    importlib.invalidate_caches()
    with pytest.raises(ImportError, match=said):
        model({})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("tried_e", "tried_e:number", "not a function"),
        ("tried_f", "tried_f:absent", "cannot be imported: AttributeError"),
        ("tried_g", "tried_g_gone:model", "no sources"),
    ],
)
def test_an_entry_point_that_is_no_model_is_refused(site, name, value, reason):
    install(site, name, {f"{name}.py": SOURCE}, **{name: value})
    digest = "0" * 64 if reason == "no sources" else digest_of(name)
    assert reason in refusal_of(task(name, digest))


def test_what_goes_on_with_a_package_in_another_place_does_not_run(
    site, tmp_path_factory, monkeypatch
):
    source = "def model(record):\n    import tried_l.more\n"
    install(site, "tried_l", {"tried_l/m.py": source}, l="tried_l.m:model")
    model = installed_models._load("l", digest_of("l"))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "tried_l").mkdir()
    (elsewhere / "tried_l/more.py").write_text(EXPLODES)
    monkeypatch.syspath_prepend(str(elsewhere))
    importlib.invalidate_caches()
    with pytest.raises(ImportError, match="not digested"):
        model({})


def test_a_module_that_is_compiled_code_has_no_digest(site):
    install(site, "tried_t", {"tried_t.abi3.so": ""}, t="tried_t:model")
    with pytest.raises(ModelNotUsable, match="no sources"):
        digest_of("t")


def test_a_model_exchanged_under_a_running_process_is_not_mixed_with_the_old_one(site):
    install(site, "tried_m", {"tried_m.py": SOURCE}, m="tried_m:model")
    before = digest_of("m")
    assert refusal_of(task("m", before)) is None
    (site / "tried_m.py").write_text(SOURCE + "\n")
    installed_models.model_for.cache_clear()
    assert "restart" in refusal_of(task("m", digest_of("m")))
    assert refusal_of(task("m", before)) is None


class Panic(BaseException):
    """What a library in another language may raise."""


@pytest.mark.parametrize("error", [RuntimeError, GeneratorExit, SystemExit, Panic])
def test_a_model_that_fails_on_records_gives_no_numbers_and_no_error(site, monkeypatch, error):
    install(site, "tried_p", {"tried_p.py": SOURCE}, p="tried_p:model")
    query = task("p", digest_of("p")).gradient_query([0.5])
    gradients = gradients_for(query)
    assert query.encode([[1.0]], gradients).tolist() == [2**19]
    model = installed_models.model_for(query.model, query.columns)

    def fails(point, values):
        raise error(f"bad record {values}")

    monkeypatch.setattr(type(model), "gradients", lambda self, point, values: fails(point, values))
    assert query.encode([[1.0]], gradients).tolist() == [0]
