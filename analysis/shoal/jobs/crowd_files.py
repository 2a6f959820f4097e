"""Reads crowd files: a crowd job that an analyst wrote in TOML."""

from pathlib import Path
from typing import Any, Final

from pydantic import Field

from shoal.jobs.job_settings import Bounds, CrowdSettings, columns_of
from shoal_holder.toml_files import read_toml
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.models import Family
from shoal_protocol.wire.documents import Model

_TARGETS: Final[dict[Family, str]] = {
    "linear": "systolic_pressure = [60, 220]",
    "logistic": "smoker = [0, 1]                # yes is whatever lies above the middle",
    "poisson": "visits = [0, 20]               # 0, and the largest count",
}

_EXAMPLE: Final = """\
[task]
family = "%s"
epsilon = 1.0                  # of one contribution, local and pure
learning_rate = 0.03
clip = 0.03                    # largest step of a weight; the noise is 2 clip / epsilon
instances = 20                 # as many as contributions that are under way at once, or fewer:
                               # more of them cost accuracy; see `shoal plan`
# variant = "one"              # or feature, all: which weights a contribution touches
# clipping = "coordinate"      # or residual: feature and all need it for later noise to hide more
# start = [0, 0, 0]            # normalised weights to begin with: `shoal crowd model JOB`
                               # prints an earlier model's, for the same columns and bounds

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]
%s

[settings]
contributions = 100000         # the job is closed after so many of them, or after open_seconds
contributions_per_client = 1
contributions_per_record = 1
open_seconds = 86400
session_seconds = 600          # within which a model that was drawn must come back
"""


class _CrowdFile(Model):
    task: dict[str, Any]
    features: dict[str, Bounds] = Field(min_length=1)
    target: dict[str, Bounds] = Field(min_length=1, max_length=1)
    settings: CrowdSettings


class CrowdFile(Model):
    """A crowd job, complete but for the analyst, the consortium and the time of its opening."""

    task: CrowdTask
    settings: CrowdSettings


def read_crowd_file(path: Path) -> CrowdFile:
    """Read a crowd file.

    Raises:
        ValueError: it is not TOML, or something in it is missing, unknown or out of range.
        OSError: it cannot be read.
    """
    return read_toml(path, parse_crowd_file)


def parse_crowd_file(content: dict[str, Any]) -> CrowdFile:
    """Put together what the TOML says.

    Raises:
        pydantic.ValidationError: something is missing, unknown or out of range.
    """
    file = _CrowdFile.model_validate(content)
    [target] = columns_of(file.target)
    task = file.task | {"features": columns_of(file.features), "target": target}
    return CrowdFile.model_validate({"task": task, "settings": file.settings})


def example(family: Family) -> str:
    """Return a crowd file to begin with."""
    return (_EXAMPLE % (family, _TARGETS[family])).rstrip()
