"""A formula over the whole federation, by a dictionary that has a variable of text levels."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.estimators import LinearRegressionInBounds
from shoal_consortium.party_files import read_signing_key
from shoal_holder.records import Records
from shoal_protocol.trust.dictionary import Category, DataDictionary, Flag, Number, Variable
from shoal_protocol.wire.documents import sign
from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.people import people
from tests.world.trust import HOLDER_POLICY, SITES, Trust

VARIABLES: tuple[Variable, ...] = (
    Number(name="age", meaning="age", unit="years", lower=0, upper=120),
    Category(name="smoker", meaning="smokes", levels=("no", "yes", "former")),
    Flag(name="treated", meaning="was treated"),
    Number(name="pressure", meaning="blood pressure", unit="mmHg", lower=60, upper=200),
)
COLUMNS = tuple(each.name for each in VARIABLES)
FORMULA = "pressure ~ age + C(smoker) + age:treated + I(age**2) + spline(age, 3)"


class Surveyed(Trust):
    """A consortium whose data holders have all variables of the dictionary."""

    def records(self, site: str) -> Records:
        """Return records as a loader makes them: levels are places."""
        count = SITES[site]
        numbers = np.arange(count) + 7 * list(SITES).index(site)
        age = 30.0 + (numbers * 37) % 50
        table = [age, numbers % 3, numbers % 2, 90.0 + 0.5 * age + 10.0 * (numbers % 3 == 1)]
        return people(COLUMNS, np.column_stack(table))


@asynccontextmanager
async def survey(trust: Trust, tmp_path: Path, **allowed: Any) -> AsyncIterator[Federation]:
    """Run a federation whose trainer has the dictionary; owners allow what is `allowed`."""
    policy = HOLDER_POLICY.model_copy(update={"columns": COLUMNS, **allowed})
    holders: dict[str, dict[str, Any]] = {site: {"policy": policy} for site in SITES}
    with_variables = Surveyed(trust.directory, trust.consortium)
    async with Federation(with_variables, tmp_path, holders=holders) as running:
        await running.step()
        manifest = trust.consortium.manifest
        body = DataDictionary(
            consortium=manifest.consortium,
            authority=manifest.authority,
            sequence=1,
            previous=None,
            variables=VARIABLES,
        )
        key = read_signing_key(trust.directory / "authority" / "signing.key")
        signed = sign(body, "authority", key).encode()
        answer = await running.ask("trainer", "/v1/dictionary", method="PUT", content=signed)
        assert answer.status_code == 201
        yield running


@pytest.fixture
async def surveyed(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with survey(trust, tmp_path) as running:
        yield running


async def test_a_formula_is_learned_and_data_holders_evaluate_its_terms(
    surveyed: Federation,
) -> None:
    dictionary = await surveyed.after(surveyed.analyst.dictionary())
    task: Any = LinearRegressionInBounds(formula=FORMULA, method="plain").to_task(
        dictionary.named()
    )
    report = await surveyed.learn(task=task)
    assert report.posterior.columns == (
        *("age", "C(smoker)[yes]", "C(smoker)[former]", "age**2"),
        *("spline(age)[1]", "spline(age)[2]", "spline(age)[3]", "age:treated", "pressure"),
    )
    await audit(surveyed)  # what each holder sent is what its records' terms are, and its noise
