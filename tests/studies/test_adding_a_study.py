"""A study is its one module: task file, learner, simulation and estimator follow from it."""

import subprocess
import sys
from pathlib import Path

STUDY = '''
"""The sum of one column."""

from typing import ClassVar, Literal

import numpy as np

from shoal_protocol.queries import FirstMoments
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.one_round import noise_of, summarise
from shoal_studies.catalogue.study import SUM_BITS, OneRoundStudy
from shoal_studies.posteriors.forms import StoredDraws


class ColumnTotalPosterior(StoredDraws):
    """Of the sum of a column's values, in half ranges about the middle of its bounds."""

    name: Literal["column_total"] = "column_total"
    names: tuple[str, ...] = ("total",)


class ColumnTotalTask(OneRoundStudy):
    """The sum of one column."""

    posteriors: ClassVar = (ColumnTotalPosterior,)
    example: ClassVar[str] = """\\
[task]
name = "column_total"

[column]
age = [18, 100]
"""

    name: Literal["column_total"] = "column_total"
    column: ColumnBounds

    @property
    def columns(self):
        return (self.column,)

    def query(self):
        return FirstMoments(
            columns=self._query_columns(),
            intercept=0.0,
            radius=None,
            grid_bits=SUM_BITS,
            records_per_client=self.records_per_client,
        )

    def posterior_from(self, released):
        unit = released.query.grid**2
        noise, seen = noise_of(released, 0, unit), released.values[0] / unit
        law = summarise(noise.log_density, -noise.reach, noise.reach, lambda x: seen + x)
        return ColumnTotalPosterior(columns=(self.column.name,), records=1, **law)
'''
PROGRAM = """
import sys, tomllib
import numpy as np
from shoal_studies import catalogue

catalogue.__path__.append(sys.argv[1])

from shoal import SimulatedFederation, estimators
from shoal.jobs.task_files import example, parse_task_file

task = parse_task_file(tomllib.loads(example("column_total"))).task
age = np.linspace(18.0, 100.0, 500)
simulated = SimulatedFederation(
    {"age": age}, epsilon=20.0, delta=1e-5, dropouts=0, colluders=0, seed=1
)
fitted = estimators.ColumnTotal(column={"age": (18.0, 100.0)}).fit(simulated)
assert fitted.to_task() == task, (fitted.to_task(), task)
print(fitted.posterior_.summary())
print(float(fitted.posterior_.mean[0]))
"""


def test_a_study_is_added_by_its_module_alone(tmp_path: Path) -> None:
    (tmp_path / "column_total.py").write_text(STUDY)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "total" in done.stdout
    assert abs(float(done.stdout.split()[-1])) < 5.0  # ages are spread evenly about the middle
