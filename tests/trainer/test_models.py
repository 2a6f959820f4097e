"""The trainer takes no job whose model it cannot learn, and says what to do about it."""

from pathlib import Path

import pytest

from shoal_kit.installed_models import digest_of
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.wire.errors import RefusedJob
from shoal_studies.catalogue.variational import NumpyroTask
from shoal_trainer.jobs import check_request
from tests.world import examples
from tests.world.installed_models import install_examples

POLICY = examples.POLICY.model_copy(update={"queries": ("gradient_sum",)})
CONSORTIUM = examples.consortium(policy=POLICY)


def request(**changes):
    bounds = [ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in ("x", "y")]
    fields = {
        "entry_point": "robust_regression",
        "digest": "0" * 64,
        "unconstrained": 3,
        "columns": tuple(bounds),
        "rounds": 3,
        "batch": None,
    }
    task = NumpyroTask(**(fields | changes))
    return examples.asking(task=task, manifest=CONSORTIUM.digest)


def check(asked):
    check_request(asked, CONSORTIUM, now=examples.OPENED_AT.replace(hour=11))


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    install_examples(tmp_path / "site", monkeypatch)
    return digest_of("robust_regression")


def test_a_job_whose_model_is_not_installed_is_refused() -> None:
    with pytest.raises(RefusedJob, match="install its distribution"):
        check(request(entry_point="absent"))


def test_a_job_whose_model_is_installed_in_another_version_is_refused(digest: str) -> None:
    with pytest.raises(RefusedJob, match="shoal model digest robust_regression"):
        check(request())
