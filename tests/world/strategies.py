"""Hypothesis strategies for what crosses the wire: values, sets, vectors, shares and tampering."""

import copy
import math
from collections.abc import Iterator
from typing import Any, Final, get_args

import numpy as np
from hypothesis import strategies as st

from shoal_protocol.queries import (
    ClassScoreSum,
    Column,
    ColumnMoments,
    FirstMoments,
    GradientSum,
    HazardScoreSum,
    NormCounts,
    ScoreSum,
    SecondMomentMatrix,
    SecondMoments,
    VectorSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.models import LogisticRegressionModel
from shoal_protocol.queries.moments import LARGEST_RADIUS
from shoal_protocol.queries.scores import LARGEST_COORDINATE, Family, mean_of, weight_of
from shoal_protocol.sharing.shares import SEED_BYTES
from shoal_protocol.wire.encoding import LARGEST, LARGEST_CLIENT_INDEX

LARGEST_JSON_INTEGER: Final = 2**53 - 1

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
finite_floats = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST_JSON_INTEGER, LARGEST_JSON_INTEGER)
    | finite_floats
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)

clients = st.integers(0, LARGEST_CLIENT_INDEX)
runs = st.tuples(st.integers(0, 2**20), st.integers(1, 70_000)).map(
    lambda run: set(range(run[0], run[0] + run[1]))
)
client_sets = st.sets(clients, max_size=50) | st.sets(st.integers(0, 200)) | runs

residues = st.integers(0, 2**64 - 1)
ring_vectors = st.lists(residues, min_size=1, max_size=40).map(
    lambda values: np.array(values, np.uint64)
)
signed_vectors = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40).map(
    lambda values: np.array(values, np.int64)
)
node_counts = st.integers(2, 7)


def make_query(kind, columns, *, radius=None, intercept=0.0, grid_bits=10, records=1, **scores):
    """Return a query of the catalogue whose columns have the bounds -1 and 1.

    What a kind cannot have becomes what it can: moments of columns have neither ball nor constant,
    weighted rows and scores always a ball, scores always a constant, hazards a small one; a vector
    has `columns` entries and no constant; of class scores the last `classes` columns say of which
    a record is. `scores` are fields of these.
    With `record_weights` the last column is a weight, with the bounds 0 and 1.
    """
    weights = [Column(name="weight", centre=0.5, scale=0.5)] * scores.get("record_weights", False)
    named = [Column(name=f"c{j}", centre=0.0, scale=1.0) for j in range(columns - len(weights))]
    if issubclass(kind, ColumnMoments):
        radius, intercept = None, 0.0
    elif issubclass(kind, VectorSum):
        named, intercept, scores = named[:1], 0.0, {"entries": columns} | scores
    elif issubclass(kind, WeightedRowMatrix):
        radius = min(radius or 0.8, LARGEST_RADIUS)
    elif issubclass(kind, ScoreSum):
        radius, intercept = radius or 1.0, intercept or 0.5
        scores = _far_apart(scores.get("family", "poisson"), intercept, len(named)) | scores
    elif issubclass(kind, HazardScoreSum):
        columns, radius, intercept = max(columns, 3), max(radius or 1.0, 0.5), 0.25
        named = [Column(name=f"c{j}", centre=0.0, scale=1.0) for j in range(columns)]
        edges = scores.get("edges", (-1.0, 0.0, 1.0))  # up to 0 the hazard is 1, which is the cut
        point = (0.0,) * (len(edges) + columns - 3)
        scores = {"edges": edges, "point": point, "hazard_cut": 1.0} | scores
    elif issubclass(kind, ClassScoreSum):
        radius, intercept, columns = radius or 1.0, intercept or 0.5, max(columns, 3)
        scores = _steep(scores.get("classes", 2), radius, intercept, columns) | scores
        named = [Column(name=f"c{j}", centre=0.0, scale=1.0) for j in range(columns)]
    return kind(
        columns=(*named, *weights),
        intercept=intercept,
        radius=radius,
        grid_bits=grid_bits,
        records_per_client=records,
        **scores,
    )


def _far_apart(family, intercept, columns):
    """Return fields of scores where some residuals reach the cut exactly, and others are cut."""
    predictor = -0.5 if family == "normal" else -1.0
    means = mean_of(family, np.array([predictor]))
    nearer = -1.0 if family in ("normal", "logistic") else 1.0  # of targets' ends
    lowest = -1.0 if family == "normal" else 0.0  # residuals from targets that can be
    residuals = (max(nearer, lowest) - means) * weight_of(family, means, 1.0)
    return {
        "family": family,
        "point": (predictor / intercept, *(0.0,) * (columns - 1)),
        "dispersion": 1.0,
        "residual_cut": abs(float(residuals[0])),
    }


def _steep(classes, radius, intercept, columns):
    """Return fields of class scores: long rows are of the first class or the second."""
    features = columns - classes
    edge = math.sqrt(max(radius**2 - intercept**2, 0.0) / features)
    flat = (0.0,) * (features - 1)
    points = [(-1e4 * edge / intercept, 1e4, *flat), (0.0, 0.0, *flat)]
    points += [(-1e4 / intercept, 0.0, *flat)] * (classes - 2)
    return {"classes": classes, "point": sum(points, ())}


_kinds_and_columns = st.tuples(
    st.sampled_from(
        [FirstMoments, VectorSum, SecondMoments, SecondMomentMatrix, ColumnMoments, NormCounts]
    ),
    st.integers(1, 7),
) | st.tuples(st.just(WeightedRowMatrix), st.integers(2, 7))
_shapes = {
    "radius": st.none() | st.floats(0.2, 4.0),
    "intercept": st.sampled_from([0.0, 0.3, 1.0]),
    "grid_bits": st.integers(4, 15),
    "records": st.integers(1, 3),
}
_coordinates = st.sampled_from([0.0, 1.0, -1.0, LARGEST_COORDINATE, -LARGEST_COORDINATE])
_reals = st.sampled_from([0.0, 1.0, -1.0, LARGEST, -LARGEST])
_positive = st.sampled_from([5e-324, 1e-308, 1e-6, 1.0, LARGEST]) | st.floats(0.01, 10.0)


def _bases(coordinates):
    """Return a strategy for bases of so many coordinates at most, () among them."""
    numbers = _coordinates | st.floats(-5.0, 5.0)
    return st.integers(0, coordinates).flatmap(
        lambda size: st.tuples(*(st.tuples(*[numbers] * row) for row in range(1, size + 1)))
    )


score_sums = st.integers(2, 7).flatmap(
    lambda columns: st.builds(
        make_query,
        st.just(ScoreSum),
        st.just(columns),
        family=st.sampled_from(get_args(Family)),
        point=st.tuples(*[_reals | st.floats(-5.0, 5.0)] * columns),
        basis=_bases(columns),
        dispersion=_positive,
        residual_cut=_positive,
        **_shapes,
    )
)
hazard_sums = st.tuples(st.integers(3, 6), st.integers(1, 4)).flatmap(
    lambda sizes: st.builds(
        make_query,
        st.just(HazardScoreSum),
        st.just(sizes[0]),
        edges=st.just(tuple(np.linspace(-1.0, 1.0, sizes[1] + 1).tolist())),
        point=st.tuples(*[_coordinates | st.floats(-3.0, 3.0)] * (sum(sizes) - 2)),
        hazard_cut=st.sampled_from([1.0, 100.0]) | st.floats(1.0, 4.0),
        basis=_bases(sizes[0] - 2),
        **_shapes,
    )
)
class_score_sums = st.tuples(st.integers(1, 4), st.integers(2, 4)).flatmap(
    lambda sizes: st.builds(
        make_query,
        st.just(ClassScoreSum),
        st.just(sum(sizes)),
        classes=st.just(sizes[1]),
        point=st.tuples(*[_coordinates | st.floats(-5.0, 5.0)] * (sizes[1] * (sizes[0] + 1))),
        basis=_bases(sizes[0] + 1),
        **_shapes,
    )
)
queries = (
    score_sums
    | hazard_sums
    | class_score_sums
    | st.builds(lambda kind, **shape: make_query(*kind, **shape), _kinds_and_columns, **_shapes)
)
gradient_sums = st.builds(
    lambda columns, clip, bits, records: GradientSum(
        model=LogisticRegressionModel(intercept=0.3),
        columns=tuple(Column(name=f"c{j}", centre=0.0, scale=1.0) for j in range(columns)),
        point=(0.5,) * columns,
        clip=clip,
        grid_bits=bits,
        records_per_client=records,
    ),
    st.integers(1, 7),
    st.floats(0.1, 50.0),
    st.integers(5, 20),
    st.integers(1, 1000),
)
seeds = st.binary(min_size=SEED_BYTES, max_size=SEED_BYTES)


Path = tuple[str | int, ...]


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every value inside a JSON value, the whole one first."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*at, index))


def at_path(value: Any, path: Path) -> Any:
    """Return what stands at `path`."""
    for step in path:
        value = value[step]
    return value


def replaced(value: Any, path: Path, by: Any) -> Any:
    """Return a copy of a JSON value in which `by` stands at `path`."""
    if not path:
        return by
    changed = copy.deepcopy(value)
    at_path(changed, path[:-1])[path[-1]] = by
    return changed


def without(value: Any, path: Path) -> Any:
    """Return a copy of a JSON value that lacks what stands at `path`."""
    changed = copy.deepcopy(value)
    del at_path(changed, path[:-1])[path[-1]]
    return changed


def flipped(content: bytes, position: int, flip: int = 1) -> bytes:
    """Return `content` with the bits `flip` (1 to 255) of the byte at `position` flipped."""
    changed = bytearray(content)
    changed[position] ^= flip
    return bytes(changed)
