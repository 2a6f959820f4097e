"""Which rounds a linear regression may ask, by method: the honest one, and no other."""

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest

from shoal_protocol.queries import (
    FirstMoments,
    Moments,
    NormCounts,
    Query,
    SecondMomentMatrix,
    SecondMoments,
)
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.errors import RefusedSpec
from shoal_studies.catalogue.linear_regression import (
    LinearRegressionTask,
    RegressionMethod,
    query_for,
    thresholds_for,
)
from tests.world.certified import changed

METHODS: tuple[RegressionMethod, ...] = get_args(RegressionMethod)
CLIENTS = 600
KINDS = (FirstMoments, SecondMoments, SecondMomentMatrix, NormCounts)
BEYOND = 1.001  # of a number that may be anything up to its largest
each_task = pytest.mark.parametrize("method", METHODS)


def task_of(method: RegressionMethod) -> LinearRegressionTask:
    return LinearRegressionTask(
        features=(
            ColumnBounds(name="age", lower=20.0, upper=100.0),
            ColumnBounds(name="weight", lower=30.0, upper=150.0),
        ),
        target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
        method=method,
    )


def rounds_of(task: LinearRegressionTask) -> list[tuple[Query, list[ReleasedSum]]]:
    """Return each round's honest query and the sums before it, of made-up records."""
    generator = np.random.default_rng(5)
    middles, spreads = [55.0, 80.0, 130.0], [12.0, 15.0, 14.0]
    records = generator.normal(middles, spreads, (CLIENTS, 3))
    asked: list[tuple[Query, list[ReleasedSum]]] = []
    sums: list[ReleasedSum] = []
    for number in range(task.rounds):
        chosen = None
        if task.projects and number == task.rounds - 1:
            chosen = list(thresholds_for(task))[-1]
        query = query_for(task, CLIENTS, sums, chosen)
        asked.append((query, list(sums)))
        encoded = sum(query.encode(row[None, :]) for row in records)
        noise_sd = np.full(query.dimension, query.design("discrete_gaussian").sensitivity)
        values = np.asarray(encoded) + np.rint(generator.normal(0.0, noise_sd)).astype(np.int64)
        sums.append(
            ReleasedSum(
                query=query,
                values=values,
                cohort_size=CLIENTS,
                noise_sd=noise_sd,
                mechanism="discrete_gaussian",
            )
        )
    return asked


def with_column(query: Moments, index: int, **fields: Any) -> Moments:
    columns = list(query.columns)
    columns[index] = columns[index].model_copy(update=fields)
    return changed(columns=tuple(columns))(query)


def as_another(query: Moments, kind: type[Moments]) -> Moments:
    return kind.model_validate({**query.model_dump(), "name": kind.model_fields["name"].default})


def lies(query: Moments, task: LinearRegressionTask, number: int) -> Iterator[tuple[str, Moments]]:
    """Yield queries that no sums lead to, each with what it lies about."""
    projected = task.projects and number == task.rounds - 1
    for kind in KINDS:
        if kind is not type(query):
            yield f"the query is {kind.__name__}", as_another(query, kind)
    yield "a column is left out", changed(columns=query.columns[1:])(query)
    yield "a column is there twice", changed(columns=(*query.columns, query.columns[0]))(query)
    yield "columns are in another order", changed(columns=query.columns[::-1])(query)
    yield "records", changed(records_per_client=2)(query)
    for intercept in {0.0, query.intercept * 1.01, 1.0} - {query.intercept}:
        yield f"intercept {intercept}", changed(intercept=intercept)(query)
    for bits in (query.grid_bits - 1, query.grid_bits + 1, 10):
        yield f"grid {bits}", changed(grid_bits=bits)(query)
    radius = query.radius
    if radius is not None:
        yield "no radius", changed(radius=None)(query)
        for factor in (1e-6, 1e6) if projected else (1e-6, 1.0 / BEYOND, BEYOND, 1e6):
            yield f"radius times {factor}", changed(radius=factor * radius)(query)
    else:
        yield "a radius", changed(radius=1.0)(query)
    for index, (column, bounds) in enumerate(zip(query.columns, task.columns, strict=True)):
        yield f"name of {index}", with_column(query, index, name="smoker")
        for sign in (-1.0, 1.0):
            centre = column.centre + sign * 1e-3 * bounds.half_range
            yield f"centre {sign} of {index}", with_column(query, index, centre=centre)
        factors = (1e-300, 0.001, 1000.0) if projected else (1e-300, 1.0 / BEYOND, BEYOND, 1e6)
        for factor in factors:
            yield (
                f"scale of {index} times {factor}",
                with_column(query, index, scale=factor * column.scale),
            )


@each_task
def test_the_terms_allow_the_rounds_of_every_population_that_the_job_does(
    method: RegressionMethod,
) -> None:
    task = task_of(method)
    terms = task.terms(least=2, most=100 * CLIENTS)
    for population in (2, CLIENTS, 100 * CLIENTS):
        chosen = next(thresholds_for(task)) if task.projects and task.rounds == 1 else None
        terms.check(query_for(task, population, (), chosen), number=0)
    for number, (query, _) in enumerate(rounds_of(task)):
        terms.check(query, number=number)


@each_task
def test_whatever_a_trainer_changes_in_a_round_is_refused(method: RegressionMethod) -> None:
    task = task_of(method)
    terms, allowed = task.terms(least=CLIENTS, most=CLIENTS), []
    for number, (query, _) in enumerate(rounds_of(task)):
        assert isinstance(query, Moments)
        for lie, other in lies(query, task, number):
            try:
                terms.check(other, number=number)
            except RefusedSpec:
                continue
            allowed.append((number, lie))
    assert allowed == []
