"""Numbers of documents: each has finite bounds, and none within them breaks what is computed."""

import json
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from inspect import isfunction
from pathlib import Path as FilePath
from pkgutil import walk_packages
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import annotated_types
import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo
from pyroaring import BitMap

from shoal.jobs.task_files import example, parse_task_file
from shoal_holder.messages import answer_to
from shoal_holder.rounds import allowed_seconds
from shoal_holder.vault import Vault
from shoal_protocol.crowds.draws import CrowdJobRequest, check_crowd_job
from shoal_protocol.crowds.tasks import (
    CrowdTask,
    Variant,
    contribute,
    design_rows,
    first_weights,
    steps,
)
from shoal_protocol.jobs.charges import Charges
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.jobs.job_request import JobRequest, PrivacyDemand, check_job
from shoal_protocol.privacy.accounting import Balances, Cost, compose
from shoal_protocol.queries import GradientSum, Mechanism, Query, QueryName
from shoal_protocol.queries.models import Family, InstalledModel
from shoal_protocol.rounds.round_spec import RoundSpec, check_spec
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.policy import Policy
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import ProtocolError
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.registry import STUDIES
from tests.world import examples
from tests.world.crowd_examples import CROWD_CONSORTIUM, CROWD_DOCUMENTS, CROWD_TASK
from tests.world.strategies import Path, at_path, paths, replaced

PRODUCT: Final = (
    "shoal_protocol shoal_holder shoal_agent shoal_loader shoal_kit shoal_service shoal_compute "
    "shoal_aggregator shoal_trainer shoal_studies shoal shoal_consortium shoal_command "
    "shoal_command_groups"
).split()
SIZES: Final = (
    *(0, 1, 2, 3, 4, 15, 255, 1_000, 2**20, 2**31, 2**32, 2**53 - 1, 2**53, 2**64, 10**400),
    *(0.0, 5e-324, 2.3e-308, 1e-200, 1e-31, 1e-30, 1e-9, 0.5, 1.5, 1.0 - 2**-53, 700.0),
    *(1e6, 1e15, 1e30, 1.1e30, 1e100, 1e154, 1e200, 1e308, 1.7976931348623157e308),
)
NUMBERS: Final = st.sampled_from([*SIZES, *(-size for size in SIZES)]) | st.floats()


def every_model(of: type[pydantic.BaseModel]) -> Iterator[type[pydantic.BaseModel]]:
    for kind in of.__subclasses__():
        if kind.__module__.split(".")[0] in PRODUCT:
            yield kind
        yield from every_model(kind)


def numbers_in(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the metadata of each number in an annotation."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in (int, float):
        yield metadata
    elif origin is Annotated:
        more = [each.metadata if isinstance(each, FieldInfo) else [each] for each in inner[1:]]
        yield from numbers_in(inner[0], (*metadata, *(one for several in more for one in several)))
    elif origin in (Union, UnionType):
        for each in inner:
            yield from numbers_in(each, metadata)
    elif origin is not Literal:
        for each in inner:
            yield from numbers_in(each)


def is_bounded(metadata: tuple[Any, ...]) -> bool:
    lower = any(isinstance(each, annotated_types.Ge | annotated_types.Gt) for each in metadata)
    upper = any(isinstance(each, annotated_types.Le | annotated_types.Lt) for each in metadata)
    return lower and upper


def test_every_number_of_every_document_file_and_answer_has_finite_bounds() -> None:
    for package in PRODUCT:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    for name, verb in vars(Vault).items():
        if isfunction(verb) and not name.startswith("_"):
            answer_to(verb)
    models = set(every_model(pydantic.BaseModel))
    of_fields = [
        (f"{model.__module__}.{model.__name__}.{name}", metadata)
        for model in models
        for name, field in model.model_fields.items()
        for metadata in numbers_in(field.annotation, tuple(field.metadata))
    ]
    assert len(models) > 200
    assert len(of_fields) > 300
    assert {name for name, metadata in of_fields if not is_bounded(metadata)} == set()


POLICY = Policy(
    minimum_cohort=8,
    minimum_colluders=2,
    colluding_holders=0,
    minimum_holders=1,
    maximum_epsilon=4.0,
    delta=1e-6,
    mechanisms=("discrete_gaussian", "discrete_laplace"),
    queries=get_args(QueryName),
    maximum_round_seconds=3600,
)
CONSORTIUM = examples.consortium(policy=POLICY)
ANY_QUERY: Final = pydantic.TypeAdapter[Any](Query)
VECTORS = json.loads((FilePath(__file__).parent.parent / "vectors/queries.json").read_text())
QUERIES = {
    json.dumps(case["inputs"]["query"]): case["inputs"]["query"]
    for case in VECTORS
    if "query" in case["inputs"]
}


def places_of_numbers(value: Any) -> list[Path]:
    found = ((path, at_path(value, path)) for path in paths(value))
    return [
        path for path, one in found if isinstance(one, int | float) and not isinstance(one, bool)
    ]


@st.composite
def with_extremes(draw: st.DrawFn, values: list[Any]) -> Any:
    """Draw one of some JSON values with up to three of its numbers replaced."""
    value = draw(st.sampled_from(values))
    places = places_of_numbers(value)
    for place in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        value = replaced(value, place, draw(NUMBERS))
    return value


def spec_of(query: Any, mechanism: Any, **changes: Any) -> RoundSpec:
    cost = Cost.gaussian(0.25) if mechanism == "discrete_gaussian" else Cost.pure(1.5)
    arguments: dict[str, Any] = {"query": query, "mechanism": mechanism, "cost": cost}
    return examples.spec(manifest=CONSORTIUM, **arguments | changes)


def records_of(query: Any) -> Iterator[np.ndarray]:
    width, most = len(query.column_names), query.records_per_client
    yield np.empty((0, width))
    for value in (0.0, -0.0, 5e-324, 1.0, -1e30, 1e308, -1.7e308):
        yield np.full((min(most, 2), width), value)


def encoded(query: Any, records: np.ndarray) -> np.ndarray:
    if isinstance(query, GradientSum) and isinstance(query.model, InstalledModel):
        return query.encode(records, lambda point, rows: np.tile(point, (len(rows), 1)))
    return query.encode(records)


def compute_all(query: Any) -> None:
    """Compute what parties compute from a query that they did not refuse to read."""
    for mechanism in get_args(Mechanism):
        assert np.isfinite(query.design(mechanism).sensitivity)
        try:
            spec = spec_of(query, mechanism)
        except (ValueError, ProtocolError):
            continue
        assert 0.0 < allowed_seconds(spec, 3) < 1e9
        assert all(np.isfinite(part.variance(clients=12)) for _, part in spec.noise_blocks())
    for records in records_of(query):
        vector = encoded(query, records)
        assert vector.shape == (query.dimension,)
        assert np.abs(vector).max() <= query.largest_value


@pytest.mark.slow
@settings(max_examples=1500)
@given(with_extremes(list(QUERIES.values())))
def test_a_query_is_refused_or_computed_with(wire: Any) -> None:
    try:
        query = ANY_QUERY.validate_python(wire)
    except pydantic.ValidationError:
        return
    compute_all(query)


def compute_with(body: Any) -> None:
    """Compute what parties compute from a document that they did not refuse to read."""
    match body:
        case RoundSpec():
            check_spec(body, examples.CONSORTIUM, now=examples.OPENED_AT)
        case JobRequest():
            check_job(body, examples.CONSORTIUM.manifest)
            account(body.privacy.cost)
        case CrowdJobRequest():
            check_crowd_job(body, CROWD_CONSORTIUM.manifest)
        case Manifest():
            account(body.policy.cap.whole)
            check_job(examples.JOB, body)
        case Charges():
            for charged in body.rounds:
                account(Cost.stated(charged.mu, charged.epsilon))
        case HolderDeclaration():
            body.rules.refusal(examples.JOB)
        case PosteriorReport():
            account(Cost.stated(body.privacy.mu, body.privacy.epsilon))
            str(body)
    canonical = json.loads(body.canonical)
    assert type(body).model_validate(canonical) == body


def account(cost: Cost) -> None:
    balances = Balances()
    for _ in range(3):
        balances.add(BitMap([1, 5]), cost)
    assert np.isfinite(balances.largest(BitMap([1])).mu)
    balances.affording(BitMap([1, 5]), cost, POLICY.cap)
    balances.take_back(BitMap([1, 5]), cost)
    assert np.isfinite(compose([cost] * 100_000).mu)
    POLICY.cap.allows(cost)


SIGNED = examples.DOCUMENTS | CROWD_DOCUMENTS
DOCUMENTS = [signed.to_json() for signed in SIGNED.values() if places_of_numbers(signed.to_json())]


def sent(value: Any) -> bytes:
    """Return the canonical encoding, or, for what has none, what a liar may send all the same."""
    try:
        return canonical_json(value)
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.slow
@settings(max_examples=1500)
@given(with_extremes(DOCUMENTS))
def test_a_document_is_refused_or_computed_with(wire: Any) -> None:
    with suppress(ProtocolError):
        compute_with(decode(sent(wire), type(SIGNED[wire["body"]["kind"]].body)).body)


TASKS = [tomllib.loads(example(name)) | {"purpose": "a test"} for name in STUDIES]


@pytest.mark.slow
@settings(max_examples=1500)
@given(with_extremes(TASKS))
def test_a_task_file_is_refused_or_its_terms_follow(content: Any) -> None:
    try:
        file = parse_task_file(content)
        least, most = file.settings.minimum_population, file.settings.maximum_population
        terms = file.task.terms(least=least, most=most)
    except ValueError:
        return
    for kind in terms.kinds:
        query = kind.query
        for mechanism in get_args(Mechanism):
            assert np.isfinite(query.design(mechanism).sensitivity)
        assert query.largest_value > 0
    demand = {each: getattr(file.settings, each) for each in PrivacyDemand.model_fields}
    account(PrivacyDemand(**demand).cost)


CROWD_TASKS = [
    CROWD_TASK.model_dump(mode="json") | {"family": family, "variant": variant}
    for family in get_args(Family)
    for variant in get_args(Variant)
]


@pytest.mark.slow
@settings(max_examples=1500)
@given(with_extremes(CROWD_TASKS))
def test_a_crowd_task_is_refused_or_computed_with(wire: Any) -> None:
    try:
        task = CrowdTask.model_validate(wire)
    except pydantic.ValidationError:
        return
    assert np.isfinite([task.noise_variance, task.update_variance, task.decay]).all()
    account(Cost.pure(task.contribution_epsilon))
    weights, rows, targets = first_weights(task), *design_rows(task, EXTREME_RECORDS)
    for place in range(len(rows)):
        for drawn in (weights, np.full_like(weights, 2**52), np.full_like(weights, -(2**52))):
            step = steps(task, drawn, rows[place, None], targets[place, None])
            assert np.abs(step).max() <= task.lattice_clip
            coordinate = 0 if task.variant == "one" else None
            contribute(task, drawn, step, coordinate=coordinate, noise=drawn[: task.touched])


EXTREME_RECORDS = np.array([[value] * 3 for value in (0.0, 5e-324, 1.0, -1e30, 1e308, -1.7e308)])
