"""Writes the golden vectors beside this file: always the same bytes, for keys derive from labels.

python -m tests.vectors.make_vectors
"""

import base64
import gzip
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pyroaring import BitMap

from shoal_protocol.jobs.membership import Membership
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise
from shoal_protocol.queries import (
    Axis,
    ClassScoreSum,
    Column,
    ColumnMoments,
    Counts,
    EdgeCut,
    FirstMoments,
    GradientSum,
    HazardScoreSum,
    LevelCut,
    NormCounts,
    PredictionScores,
    ScoreSum,
    SecondMomentMatrix,
    Table,
    Tables,
    VectorSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.columns import ColumnBounds, Level, Term
from shoal_protocol.queries.models import LogisticRegressionModel
from shoal_protocol.sharing import committee_sums, summation
from shoal_protocol.sharing.envelope import Header, frame, seal
from shoal_protocol.sharing.schemes import ADDITIVE, AdditiveSharing, Sharing, ThresholdSharing
from shoal_protocol.sharing.shamir import MODULUS
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Manifest
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.roster_changes import roster_of, with_enrolled, with_grown, with_key
from shoal_protocol.wire.documents import Document, Signed, sign
from shoal_protocol.wire.encoding import canonical_json, encode_clients
from tests.protocol.correlations import NOT_CORRELATIONS, doubles
from tests.vectors.operations import outcome
from tests.vectors.round_cases import round_cases
from tests.world import crowd_examples as crowd
from tests.world import examples
from tests.world.adding import added
from tests.world.crowd_examples import CROWD_CONSORTIUM, CROWD_DOCUMENTS, CROWD_TASK
from tests.world.examples import CONSORTIUM, DOCUMENTS, MATRIX, MOMENTS, NODES, SPEC, seed
from tests.world.strategies import flipped, replaced, without

FOLDER = Path(__file__).parent
ROSTER = CONSORTIUM.roster.encode()
TRUST = {"manifest": CONSORTIUM.signed_manifest.encode().hex(), "roster": ROSTER.hex()}
Case = tuple[str, str, dict[str, Any]]  # name, operation, inputs


def json_cases() -> Iterator[Case]:
    values = {
        "members in order": {"b": 1, "a": [True, False, None], "": {}},
        "members by utf-16 code units": {"\ufb33": 1, "\U0001f600": 2, "é": 3},
        "escapes": '"\\/\b\f\n\r\t\u0000\u001f\u007f\u2028',
        "integers": [0, -1, 2**53 - 1, -(2**53) + 1],
        "floats": [0.5, 1.0, 1e-7, 1e-6, 1e20, 1e21, 5e-324, 1.7976931348623157e308, -0.1],
        "floats that are whole and large": [2.0**53, 2.0**60, 123456789012345680.0],
    }
    for name, value in values.items():
        yield name, "encode_json", {"value": value}
        yield f"{name}, read", "decode_json", {"bytes": canonical_json(value).hex()}
    for name, text in {
        "a space": '{"a": 1}',
        "a line end": "1\n",
        "members out of order": '{"b":1,"a":2}',
        "a member twice": '{"a":1,"a":1}',
        "a point too many": "1.0",
        "an exponent too many": "1e2",
        "minus zero": "-0",
        "minus zero point zero": "-0.0",
        "not a number": "NaN",
        "infinity": "Infinity",
        "too large for a double": "1e400",
        "an integer that is no double": "9007199254740993",
        "a needless escape": r'"\u0041"',
        "half a surrogate pair": r'"\ud800"',
        "a control character": '"\t"',
        "nothing": "",
        "cut short": '{"a":',
        "nested too deep": "[" * 2_000 + "]" * 2_000,
    }.items():
        yield name, "decode_json", {"bytes": text.encode().hex()}
    yield "utf-16", "decode_json", {"bytes": '{"a":1}'.encode("utf-16").hex()}
    yield "not utf-8", "decode_json", {"bytes": b'"\xff"'.hex()}


def set_cases() -> Iterator[Case]:
    sets: dict[str, list[list[int]]] = {
        "empty": [],
        "one client": [[7, 7]],
        "three in a row stay an array": [[0, 2]],
        "four in a row become a run": [[0, 3]],
        "runs and single clients": [[1, 9], [12, 12], [14, 30]],
        "two chunks": [[65_530, 65_540]],
        "four chunks with runs have offsets": [[0, 3 * 65_536 + 5]],
        "the largest index": [[0, 0], [2**32 - 1, 2**32 - 1]],
        "4097 clients apart from each other": [[2 * n, 2 * n] for n in range(4097)],
    }
    for name, runs in sets.items():
        yield name, "encode_set", {"runs": runs}
        clients = [client for first, last in runs for client in range(first, last + 1)]
        if len(clients) < 100:
            yield f"{name}, read", "decode_set", {"base64": encode_clients(clients)}
    everyone = BitMap()
    everyone.add_range(0, 10_000_001)
    everyone.run_optimize()
    good = encode_clients([1, 2, 5])
    for name, encoded in {
        "a run written as an array": as_base64(BitMap([0, 1, 2, 3], optimize=False).serialize()),
        "more than ten million clients": as_base64(everyone.serialize()),
        "bytes behind the bitmap": as_base64(base64.b64decode(good) + b"\0"),
        "a bitmap cut short": as_base64(base64.b64decode(good)[:-1]),
        "no bytes": "",
        "not base64": "***",
        "base64 without padding": good.rstrip("="),
        "base64 with a line end": good + "\n",
        "unsorted": as_base64(bytes.fromhex("3a30000001000000000001001000000005000300")),
    }.items():
        yield name, "decode_set", {"base64": encoded}
    for name, attempt in {"a cohort": "first", "the same clients, other answers": "second"}.items():
        held = examples.held(examples.COHORT, attempt)
        given = {"holders": list(held.holders), "tags": held.tags.hex()}
        yield name, "cohort_digest", {"round": SPEC.digest, **given}
    given["nodes"] = ["compute-0", "compute-1", "compute-3"]
    yield "a cohort in committees", "cohort_digest", {"round": SPEC.digest, **given}


def as_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def roster_cases() -> Iterator[Case]:
    keys = [bytes(examples.client_key(client).verify_key).hex() for client in range(3)]
    ranges = [[0, 1], [1, 10_000], [2, 3], [0, 7]]
    revoked = [keys[0], "00" * 32, keys[2]]
    yield "nobody", "encode_roster", {"keys": [], "ranges": []}
    yield "three holders", "encode_roster", {"keys": keys, "ranges": ranges}
    yield "the second revoked", "encode_roster", {"keys": revoked, "ranges": ranges}
    given = roster_of((examples.client_key(client).verify_key, 2) for client in range(3))
    good = with_grown(given, 1, 5).encode()
    yield "three holders, read", "decode_roster", {"bytes": good.hex()}
    for name, content in {
        "cut short": good[:-1],
        "a byte too many": good + b"\0",
        "another version": good[:11] + b"\2" + good[12:],
        "another magic": b"X" + good[1:],
        "a count that does not fit": good[:12] + b"\2" + good[13:],
        "a number of ranges that does not fit": good[:16] + b"\3" + good[17:],
        "a key twice": good[:52] + good[20:52] + good[84:],
        "a range of nobody": good[:-8] + b"\3" + good[-7:],
        "an empty range": good[:-4] + bytes(4),
        "a holder without a range": good[:124] + b"\1" + good[125:],
        "empty": b"",
    }.items():
        yield name, "decode_roster", {"bytes": content.hex()}


def sharing_cases() -> Iterator[Case]:
    for name, key in {"zeros": bytes(32), "a seed": seed("a seed")}.items():
        for scheme, dimension in itertools.product(("additive", "threshold"), (1, 19)):
            inputs = {"scheme": scheme, "seed": key.hex(), "dimension": dimension}
            yield f"{name}, {scheme}, {dimension} coordinates", "expand_seed", inputs
    secret = ["0", "1", "-1", str(2**63 - 1), str(-(2**63)), "123456789"]
    for client, nodes in ((0, 2), (1, 2), (4, 3), (2**32 - 1, 5)):
        yield (
            f"client {client}, {nodes} nodes",
            "split_secret",
            splitting({"scheme": "additive"}, secret, client, nodes, nodes - 1),
        )
    secret = ["0", "1", "-1", str(2**60 - 1), str(1 - 2**60), "123456789"]
    for client, nodes, threshold in ((0, 3, 2), (1, 3, 2), (4, 5, 3), (2**32 - 1, 5, 4), (2, 3, 3)):
        sharing = {"scheme": "threshold", "threshold": threshold}
        yield (
            f"client {client}, {threshold} of {nodes} nodes",
            "split_secret",
            splitting(sharing, secret, client, nodes, threshold - 1),
        )
    for client, nodes, committee in ((0, 5, 3), (9, 5, 3), (2**32 - 1, 7, 4)):
        for threshold in (None, committee - 1):
            sharing = {"scheme": "additive", "committee": committee}
            if threshold is not None:
                sharing |= {"scheme": "threshold", "threshold": threshold}
            yield (
                f"client {client}, {threshold or committee} of its {committee} of {nodes} nodes",
                "split_secret",
                splitting(sharing, secret, client, nodes, (threshold or committee) - 1),
            )
    yield from sum_cases()
    yield from blinded_cases()


def splitting(
    sharing: Mapping[str, Any], secret: list[str], client: int, nodes: int, seeds: int
) -> dict[str, Any]:
    return {
        "sharing": sharing,
        "secret": secret,
        "holder": client,
        "nodes": nodes,
        "seeds": [seed(f"{client} {number}").hex() for number in range(seeds)],
    }


def sum_cases() -> Iterator[Case]:
    def opened(sharing: Sharing, sums: dict[int, np.ndarray]) -> dict[str, Any]:
        return {
            "sharing": sharing.model_dump(mode="json"),
            "nodes": 5,
            "sums": {str(node): each.tobytes().hex() for node, each in sums.items()},
        }

    secret = np.array([0, 1, -1, 2**50, -(2**50)], np.int64)

    def shared(sharing: Sharing) -> dict[int, np.ndarray]:
        shares = sharing.split(
            sharing.encode(secret), holder=2, nodes=5, random_bytes=examples.random_bytes("sums")
        )
        return {node: added(sharing, [share], secret.size) for node, share in enumerate(shares)}

    yield "all of 5, additive", "combine_sums", opened(ADDITIVE, shared(ADDITIVE))
    three = ThresholdSharing(threshold=3)
    sums = shared(three)
    wrong = sums | {3: summation.plus(three, sums[3], sums[0])}
    for name, given, nodes in (
        ("the first 3 of 5", sums, (0, 1, 2)),
        ("the last 3 of 5", sums, (2, 3, 4)),
        ("all of 5, any 3 enough", sums, range(5)),
        ("a wrong sum among 5 is named", wrong, range(5)),
        ("a wrong sum among 4 is seen", wrong, (0, 2, 3, 4)),
    ):
        yield name, "combine_sums", opened(three, {node: given[node] for node in nodes})
    given = {node: each for node, each in sums.items() if node != 4}
    for sharing in (AdditiveSharing(committee=3), ThresholdSharing(committee=3, threshold=2)):
        weighted = sums if sharing.scheme == "additive" else given
        yield f"{sharing.scheme}, in committees", "combine_sums", opened(sharing, weighted)


def blinded_cases() -> Iterator[Case]:
    """Yield what nodes 0 and 2 of five publish, of whom by threshold the last is lost."""
    for sharing in (AdditiveSharing(committee=3), ThresholdSharing(committee=3, threshold=2)):
        among = [0, 1, 2, 3, 4][: sharing.needed(5)]
        for node in (0, 2):
            sums = {
                start: np.arange(3, dtype=np.uint64) * np.uint64(2**59 + start)
                for start in committee_sums.starts(sharing, node=node, nodes=5)
            }
            inputs = {
                "sharing": sharing.model_dump(mode="json"),
                "nodes": 5,
                "node": node,
                "among": among,
                "sums": {str(start): each.tobytes().hex() for start, each in sums.items()},
                "box_private_key": examples.box_private_key(node).hex(),
                "box_keys": {str(k): examples.box_key(k).hex() for k in among if k != node},
                "cohort": seed("a cohort").hex(),
            }
            yield f"node {node}, {sharing.scheme}", "blind_sum", inputs


def query_cases() -> Iterator[Case]:
    records = {
        "one record": [[40.0, 120.0, 0.75]],
        "two records": [[40.0, 120.0, 0.75], [77.7, 151.3, 2.2]],
        "cut to the bounds": [[-1e9, 1e9, 1e9]],
        "in the middle": [[60.0, 130.0, 1.25]],
    }
    sums = FirstMoments(**MOMENTS.model_dump(exclude={"name"}))
    counted = {
        "columns": MOMENTS.columns[:1],
        "grid_bits": 20,
        "records_per_client": 2,
    }
    queries = {
        "sums in a box": sums,
        "counts": Counts(**counted, cut=LevelCut(column=0, levels=(40.0, 60.0))),
        "counts over bins": Counts(
            **counted, cut=EdgeCut(column=0, edges=(0.0, 40.0, 60.0, 120.0))
        ),
        "sums in a ball": sums.model_copy(update={"radius": 0.75}),
        **{
            f"a vector in a {what}": VectorSum(
                **MOMENTS.model_dump(exclude={"name", "columns", "intercept", "radius"}),
                columns=(Column(name="x", centre=80.0, scale=64.0),),
                entries=3,
                intercept=0.0,
                radius=radius,
            )
            for what, radius in {"box": None, "ball": 0.75}.items()
        },
        "moments in a box": MOMENTS,
        "moments in a ball": MOMENTS.model_copy(update={"radius": 0.75}),
        "matrix in a box": MATRIX.model_copy(update={"radius": None}),
        "matrix in a ball": MATRIX,
        "weighted rows": WeightedRowMatrix(**MATRIX.model_dump(exclude={"name"})),
        "weighted rows without intercept": WeightedRowMatrix(
            **MATRIX.model_dump(exclude={"name"}) | {"intercept": 0.0}
        ),
        "weighted rows of weighted records": WeightedRowMatrix(**weighted()),
        "rows of one length": WeightedRowMatrix(
            **MATRIX.model_dump(exclude={"name"}) | {"intercept": 0.25, "radius": 1.2},
            unit_rows=True,
        ),
        "rows of one length of weighted records": WeightedRowMatrix(
            **weighted() | {"intercept": 0.0, "radius": 1.2}, unit_rows=True
        ),
        "moments of columns": ColumnMoments(
            **MOMENTS.model_dump(exclude={"name"}) | {"intercept": 0.0, "radius": None}
        ),
        **score_queries(),
        **class_score_queries(),
        "norms in a box": NormCounts(**MOMENTS.model_dump(exclude={"name"})),
        "norms in a ball": NormCounts(**{**MOMENTS.model_dump(exclude={"name"}), "radius": 0.75}),
        "matrix without intercept": MATRIX.model_copy(update={"intercept": 0.0}),
    }
    for what, query in queries.items():
        for name, rows in records.items():
            fields = query.model_dump(mode="json")
            rows = [row[: len(query.column_names)] for row in rows]
            yield f"{what}, {name}", "encode_query", {"query": fields, "records": rows}
    yield from table_cases()
    yield from hazard_cases()
    yield from prediction_cases()
    yield from gradient_cases()
    yield from term_cases()


def weighted() -> dict[str, Any]:
    """Return fields of a regression's query whose records have weights."""
    weight = Column(name="weight", centre=1.25, scale=1.25)
    fields = MATRIX.model_dump(exclude={"name"})
    return fields | {"columns": (*MATRIX.columns, weight), "record_weights": True}


def score_queries() -> dict[str, ScoreSum]:
    """Return queries for scores, of the pressure as a class or as a count."""
    places: dict[str, dict[str, Any]] = {
        "logistic": {"point": (0.5, -1.25), "dispersion": 0.5, "residual_cut": 0.5},
        "poisson": {"point": (19.0, 0.25), "dispersion": 90.0, "residual_cut": 25.0},
        "negative_binomial": {"point": (19.0, 0.25), "dispersion": 0.125, "residual_cut": 1.75},
        "gamma": {"point": (19.0, 0.25), "dispersion": 12.5, "residual_cut": 0.5},
        "poisson, far away": {"point": (-1e6, 1e6), "dispersion": 1e-3, "residual_cut": 1e6},
        "normal": {"point": (480.0, 12.5), "dispersion": 1.0, "residual_cut": 15.0},
        "poisson, in a basis": {
            **{"point": (19.0, 0.25), "dispersion": 90.0, "residual_cut": 25.0},
            "basis": ((4.0,), (-3.25, 1.5)),
        },
        "gamma, of the constant alone": {
            **{"point": (19.0, 0.25), "dispersion": 12.5, "residual_cut": 0.5},
            "basis": ((2.5,),),
        },
    }
    shape = MATRIX.model_dump(exclude={"name"})
    found = {
        f"scores, {name}": ScoreSum(**shape, **fields, family=name.partition(",")[0])
        for name, fields in places.items()
    }
    found["scores, weighted"] = ScoreSum(**weighted(), **places["gamma"], family="gamma")
    return found


def prediction_cases() -> Iterator[Case]:
    """Yield scores of predictions of the pressure at two sites, which terms tell apart."""
    sites = [
        Column(name=f"site {each:g}", centre=0.5, scale=0.5, term=_term(each))
        for each in (3.0, 5.0)
    ]
    shape = {
        "columns": (*MOMENTS.columns, *sites),
        "intercept": 1.0,
        "radius": None,
        "grid_bits": 12,
        "records_per_client": 3,
        "bins": 4,
    }
    places: dict[str, dict[str, Any]] = {
        "normal": {"points": ((120.5, 20.25), (140.0, -3.0)), "score_limit": 0.25},
        "logistic": {"points": ((0.5, -1.25), (-2.0, 0.75)), "score_limit": 2.0},
        "poisson": {"points": ((4.75, 0.25), (5.0, -0.5)), "score_limit": 0.01},
        "negative_binomial": {"points": ((1e6, 0.0), (-1e6, 1e6)), "score_limit": 1.0},
    }
    for family, fields in places.items():
        query = PredictionScores(**shape, **fields, family=family).model_dump(mode="json")
        for name, rows in {
            "both sites": [[40.0, 120.0, 3.0], [77.7, 151.3, 5.0], [62.0, 133.0, 3.0]],
            "another site": [[40.0, 120.0, 4.0]],
            "cut to the bounds": [[-1e9, 1e9, 5.0], [1e9, -1e9, 5.0]],
        }.items():
            case = {"query": query, "records": rows}
            yield f"predictions, {family}, {name}", "encode_query", case


def _term(level: float) -> Term:
    return Term(factors=(Level(variable="site", value=level),))


def hazard_cases() -> Iterator[Case]:
    weeks = Column(name="weeks", centre=52.0, scale=52.0)
    died = Column(name="died", centre=0.5, scale=0.5)
    query = HazardScoreSum(
        columns=(*MOMENTS.columns, weeks, died),
        intercept=0.25,
        radius=0.75,
        grid_bits=12,
        records_per_client=2,
        edges=(0.0, 13.0, 26.0, 52.0),
        point=(-3.5, -3.0, -2.5, 0.5, -1.25),
        hazard_cut=1.5,
    )
    for name, rows in {
        "an event": [[40.0, 120.0, 20.5, 1.0]],
        "two records": [[39.9, 120.0, 7.25, 0.0], [77.7, 151.3, 31.5, 1.0]],
        "events at an edge": [[60.0, 120.0, 13.0, 1.0], [60.0, 130.0, 26.0, 1.0]],
        "later than the last edge": [[40.0, 130.0, 60.0, 1.0]],
        "later than is followed": [[100.0, 110.0, 52.0, 1.0]],
        "beyond the bounds": [[-1e9, 1e9, -1e9, 1e9], [1e9, -1e9, 1e9, -1e9]],
    }.items():
        fields = {"query": query.model_dump(mode="json"), "records": rows}
        yield f"hazards, {name}", "encode_query", fields
    far = query.model_copy(update={"point": (-1e6, 1e6, 0.0, 1e6, -1e6), "hazard_cut": 100.0})
    turned = query.model_copy(update={"basis": ((1.5,), (-2.25, 0.75))})
    for name, one in {"far away": far, "in a basis": turned}.items():
        fields = {"query": one.model_dump(mode="json"), "records": [[40.0, 120.0, 20.5, 1.0]]}
        yield f"hazards, {name}", "encode_query", fields


def class_score_queries() -> dict[str, ClassScoreSum]:
    """Return queries for scores of classes, which are levels of the pressure."""
    age, pressure = MATRIX.columns
    classes = [
        Column(
            name=f"{pressure.name}[{level:g}]",
            centre=0.5,
            scale=0.5,
            term=Term(factors=(Level(variable=pressure.name, value=level),)),
        )
        for level in (120.0, 130.0, 151.3)
    ]
    shape = MATRIX.model_dump(exclude={"name", "columns"}) | {"columns": (age, *classes)}
    far = (0.0, 0.0, -1e6, 1e6, 1e6, -1e6)
    places = {"near": (0.0, 0.0, 0.5, -1.25, -0.25, 2.0), "far away": far}
    found = {
        f"class scores, {name}": ClassScoreSum(**shape, classes=3, point=point)
        for name, point in places.items()
    }
    basis = ((3.0,), (-2.5, 1.25))
    in_a_basis = {"classes": 3, "point": places["near"], "basis": basis}
    return found | {"class scores, in a basis": ClassScoreSum(**shape, **in_a_basis)}


def table_cases() -> Iterator[Case]:
    flag = Column(name="age_missing", centre=0.5, scale=0.5)
    query = Tables(
        columns=(*MOMENTS.columns, flag),
        cuts=(
            EdgeCut(column=0, indicator=2, edges=(0.0, 30.0, 40.0, 60.0, 120.0)),
            LevelCut(column=1, levels=(130.0, 120.0)),
        ),
        tables=(
            Table(axes=(Axis(cut=0),)),
            Table(axes=(Axis(cut=0, merged=2),), scale=0.5),
            Table(axes=(Axis(cut=1), Axis(cut=0, merged=2)), scale=2.0),
        ),
        grid_bits=20,
        records_per_client=2,
    )
    fields = query.model_dump(mode="json")
    for name, rows in {
        "one record": [[40.0, 120.0, 0.0]],
        "two records": [[39.9, 120.0, 0.0], [77.7, 151.3, 0.0]],
        "beyond the edges": [[-1e9, 130.0, 0.0], [1e9, 130.0, 0.0]],
        "values that are missing": [[None, 130.0, 0.0], [40.0, None, 0.0]],
        "indicators of missing values": [[40.0, 130.0, 1.0], [40.0, 130.0, None]],
        "nobody": [[None, None, None]],
    }.items():
        yield f"tables, {name}", "encode_query", {"query": fields, "records": rows}


def gradient_cases() -> Iterator[Case]:
    records = {
        "one record": [[40.0, 120.0]],
        "two records": [[40.0, 120.0], [77.7, 151.3]],
        "cut to the bounds": [[-1e9, 1e9]],
        "in the middle": [[60.0, 130.0]],
    }
    models = {
        "logistic": LogisticRegressionModel(intercept=0.25),
        "logistic without intercept": LogisticRegressionModel(intercept=0.0),
    }
    for what, model in models.items():
        size = model.dimension(2)
        for where, place in {"at 0": 0.0, "elsewhere": -0.75}.items():
            query = GradientSum(
                model=model,
                columns=MATRIX.columns,
                point=(place,) * size,
                clip=0.6,
                grid_bits=16,
                records_per_client=2,
            )
            for name, rows in records.items():
                fields = query.model_dump(mode="json")
                label = f"gradients of the {what} model {where}, {name}"
                yield label, "encode_query", {"query": fields, "records": rows}


def term_cases() -> Iterator[Case]:
    age = {"variable": "age", "lower": 18.0, "upper": 90.0}
    pressure = {"variable": "pressure", "lower": 60.0, "upper": 200.0}
    terms: dict[str, list[dict[str, Any]]] = {
        "a power": [{"kind": "power", **age, "exponent": 3}],
        "an even power": [{"kind": "power", **age, "lower": -50.0, "exponent": 2}],
        "a logarithm": [{"kind": "log", **pressure}],
        "a level": [{"kind": "level", "variable": "age", "value": 40.0}],
        "a level of some": [
            {"kind": "level", "variable": "age", "value": 40.0, "among": [40.0, 90.0]}
        ],
        "centred, at a level": [
            {"kind": "centred", **pressure, "at": 120.0},
            {"kind": "level", "variable": "age", "value": 40.0},
        ],
        "a product": [
            {"kind": "power", **age, "exponent": 1},
            {"kind": "log", **pressure},
            {"kind": "level", "variable": "age", "value": 40.0},
        ],
        **{
            f"a polynomial of degree {degree}": [{"kind": "legendre", **age, "degree": degree}]
            for degree in (1, 2, 6)
        },
        **{
            f"spline {place}": [{"kind": "spline", **age, "knots": [40.0, 65.0], "place": place}]
            for place in range(6)
        },
    }
    records = {
        "in between": [[151.3, 40.0], [133.7, 47.5]],
        "cut to the bounds": [[-1e9, 1e9], [1e9, -1e9]],
        "at the ends": [[60.0, 90.0], [200.0, 18.0]],
    }
    for what, factors in terms.items():
        column = ColumnBounds.of_term(what, Term.model_validate({"factors": factors})).column()
        query = SecondMomentMatrix(
            columns=(Column(name="pressure", centre=130.0, scale=70.0), column),
            intercept=0.25,
            radius=None,
            grid_bits=12,
            records_per_client=2,
        )
        width = len(query.column_names)
        for name, rows in records.items():
            fields = query.model_dump(mode="json")
            given = [row[:width] for row in rows]
            yield f"{what}, {name}", "encode_query", {"query": fields, "records": given}


CLIENT = 4
VECTOR_NODE, SEED_NODE = CLIENT % NODES, (CLIENT + 1) % NODES
ENVELOPES = examples.envelopes(CLIENT)


def sealed(head: Header, node: int, payload: bytes, signer: int, ephemeral: str) -> bytes:
    return seal(
        Share(head.kind, payload),
        head,
        box_key=examples.box_key(node),
        key=examples.client_key(signer),
        random_bytes=lambda size: seed(ephemeral),
    )


def moved(encoded: bytes, head: Header) -> bytes:
    """Put a sealed box behind another header, signed by the holder that the header names."""
    content = head.encode() + encoded[92:-64]
    key = examples.client_key(head.holder)
    return content + key.sign(b"shoal/v1/share_envelope\n" + content).signature


def envelope_cases() -> Iterator[Case]:
    for node, name in ((SEED_NODE, "a seed"), (VECTOR_NODE, "a vector")):
        head = examples.header(CLIENT, node)
        yield (
            f"{name} is sealed",
            "seal_share",
            {
                "kind": head.kind.name.lower(),
                "node": node,
                "holder": CLIENT,
                "manifest": head.manifest,
                "round": head.round_id,
                "answer": head.answer.hex(),
                "payload": (seed("s") if head.kind is ShareKind.SEED else bytes(range(48))).hex(),
                "box_key": examples.box_key(node).hex(),
                "signing_seed": bytes(examples.client_key(CLIENT)).hex(),
                "ephemeral_private_key": seed("ephemeral").hex(),
            },
        )
        yield f"{name} arrives", "accept_envelope", arriving(ENVELOPES[node], node)
    head, good = examples.header(CLIENT, SEED_NODE), ENVELOPES[SEED_NODE]
    vector = ENVELOPES[VECTOR_NODE]
    long = examples.header(CLIENT, VECTOR_NODE)
    for name, encoded in {
        "moved to another holder": moved(good, replace(head, holder=CLIENT + NODES)),
        "moved to another node": moved(good, replace(head, node=VECTOR_NODE)),
        "moved to another round": moved(good, replace(head, round_id=seed("other").hex())),
        "moved to another manifest": moved(good, replace(head, manifest=seed("other").hex())),
        "moved to another answer": moved(good, replace(head, answer=seed("other")[:16])),
        "said to be of the other kind": moved(good, replace(head, kind=ShareKind.VECTOR)),
        "signed by another holder": sealed(head, SEED_NODE, seed("s"), CLIENT + 1, "e"),
        "of a revoked holder": sealed(
            replace(head, holder=examples.REVOKED), SEED_NODE, seed("s"), examples.REVOKED, "e"
        ),
        "of an unknown holder": sealed(replace(head, holder=999), SEED_NODE, seed("s"), 999, "e"),
        "sealed to another node": sealed(head, VECTOR_NODE, seed("s"), CLIENT, "e"),
        "a bit of the box flipped": flipped(good, 120),
        "a bit of the header flipped": flipped(good, 50),
        "a bit of the signature flipped": flipped(good, len(good) - 1),
        "another version": good[:5] + b"\2" + good[6:],
        "another magic": b"X" + good[1:],
        "an unknown kind": good[:6] + b"\2" + good[7:],
        "cut inside the header": good[:80],
        "cut by one byte": good[:-1],
        "a byte too many": good + b"\0",
        "empty": b"",
        "a seed of 31 bytes": sealed(head, SEED_NODE, bytes(31), CLIENT, "e"),
        "a vector where a seed is due": sealed(
            replace(head, kind=ShareKind.VECTOR), SEED_NODE, bytes(48), CLIENT, "e"
        ),
    }.items():
        yield name, "accept_envelope", arriving(encoded, SEED_NODE)
    short = sealed(long, VECTOR_NODE, bytes(40), CLIENT, "e")
    yield "a vector cut short", "accept_envelope", arriving(short, VECTOR_NODE)
    by_threshold = {"sharing": examples.THRESHOLD.model_dump(mode="json")}
    for name, word in (("the largest residue", MODULUS - 1), ("a word that is none", MODULUS)):
        words = np.array([word] * examples.DIMENSION, "<u8").tobytes()
        arrival = arriving(sealed(long, VECTOR_NODE, words, CLIENT, "e"), VECTOR_NODE)
        yield f"{name} in a threshold vector", "accept_envelope", arrival | by_threshold
    yield "two envelopes in bulk", "pack_envelopes", {"envelopes": [good.hex(), vector.hex()]}
    body = frame([good, vector])
    for name, content in {
        "two envelopes out of bulk": body,
        "an empty bulk body": b"",
        "a bulk body cut short": body[:-1],
        "a bulk body with half a length": body + b"\0\0",
        "a length beyond the end": b"\xff\xff\xff\xff" + body,
    }.items():
        yield name, "unpack_envelopes", {"bytes": content.hex()}
    yield "a receipt query", "pack_receipt_query", {"envelope": good.hex()}
    asked = bytes.fromhex(outcome("pack_receipt_query", {"envelope": good.hex()})["bytes"])
    for name, content in {
        "a receipt query is read": asked,
        "a receipt query that is cut short": asked[:-1],
    }.items():
        yield name, "read_receipt_query", {"bytes": content.hex()}


def arriving(encoded: bytes, node: int) -> dict[str, Any]:
    return {
        "envelope": encoded.hex(),
        "roster": ROSTER.hex(),
        "sharing": {"scheme": "additive"},
        "node": node,
        "nodes": NODES,
        "dimension": examples.DIMENSION,
        "box_private_key": examples.box_private_key(node).hex(),
        "box_key": examples.box_key(node).hex(),
    }


def document_cases() -> Iterator[Case]:
    for kind, signed in sorted(DOCUMENTS.items()):
        yield f"{kind} is signed", "sign_document", unsigned(signed)
        if kind != "manifest":
            yield f"{kind} arrives", "accept_document", read(kind, signed.encode())
    vote = DOCUMENTS["vote"]
    wire = vote.to_json()
    for name, value in {
        "a signature over something else": replaced(
            wire, ("signature",), DOCUMENTS["holdings"].signature
        ),
        "a signature in capitals": replaced(wire, ("signature",), vote.signature.upper()),
        "another version": replaced(wire, ("body", "version"), 2),
        "a version that is true": replaced(wire, ("body", "version"), True),
        "an unknown field": replaced(wire, ("body", "extra"), 1),
        "an unknown field outside the body": replaced(wire, ("extra",), 1),
        "a missing field": without(wire, ("body", "cohort_size")),
        "a number in quotes": replaced(wire, ("body", "cohort_size"), "11"),
        "true for a number": replaced(wire, ("body", "cohort_size"), True),
        "another kind": DOCUMENTS["holdings"].to_json(),
        "a list": [],
    }.items():
        yield name, "accept_document", read("vote", canonical_json(value))
    loose = json.dumps(wire)
    yield "not canonical", "accept_document", read("vote", loose.encode())
    yield "cut short", "accept_document", read("vote", vote.encode()[:-1])
    twice = vote.encode().replace(b'"version":1', b'"version":1,"version":1')
    yield "a field twice", "accept_document", read("vote", twice)
    body = vote.body
    for name, signed in {
        "a changed field": Signed(
            body.model_copy(update={"cohort_size": 10}), vote.signer, vote.signature
        ),
        "another manifest": as_party("compute-1", body, manifest=seed("other").hex()),
        "an unknown signer": as_party("stranger", body),
        "a party that may not sign this": as_party("trainer", body),
        "a node that speaks for another": as_party("compute-0", body),
        "a node that uses another's name": sign(
            body, "compute-1", examples.signing_key("compute-0")
        ),
    }.items():
        yield name, "accept_document", read("vote", signed.encode())
    for name, holder in (("a revoked holder joins", 19), ("an unknown holder joins", 999)):
        join = Membership(
            manifest=CONSORTIUM.digest, job=examples.JOB.digest, holder=holder, state="joined"
        )
        signed_join = sign(join, "holder", examples.client_key(holder))
        yield name, "accept_document", read("membership", signed_join.encode())
    loose_join = replaced(DOCUMENTS["membership"].to_json(), ("body", "holder"), 3.5)
    yield "half a holder joins", "accept_document", read("membership", canonical_json(loose_join))
    yield from correlation_cases()
    yield from charges_cases()
    yield from spec_cases()


def charges_cases() -> Iterator[Case]:
    query = DOCUMENTS["charges_query"]

    def asked(signed: Signed[Any], now: str = "2026-03-01T12:10:00.000Z") -> dict[str, Any]:
        return {"document": signed.encode().hex(), "now": now} | TRUST

    yield "a query for charges", "accept_query", asked(query)
    late, early = "2026-03-01T12:10:00.001Z", "2026-03-01T11:49:59.999Z"
    yield "a query that was recorded", "accept_query", asked(query, late)
    yield "a query of the future", "accept_query", asked(query, early)
    another = sign(query.body, "holder", examples.client_key(4))
    yield "a query by another holder's key", "accept_query", asked(another)
    elsewhere = query.body.model_copy(update={"manifest": seed("other").hex()})
    yield (
        "a query under another manifest",
        "accept_query",
        asked(sign(elsewhere, "holder", examples.client_key(3))),
    )
    body = examples.CHARGES

    def answered(signed: Signed[Any], **changes: Any) -> dict[str, Any]:
        given = {"node": body.node, "nonce": body.nonce, "after": 0, "holder": 3, "slots": [3]}
        return {"document": signed.encode().hex()} | TRUST | given | changes

    good = as_party("compute-1", body)
    yield "charges", "accept_charges", answered(good)
    yield "charges of another query", "accept_charges", answered(good, nonce="0b" * 16)
    yield "charges of another stretch", "accept_charges", answered(good, after=1)
    yield "charges by another node", "accept_charges", answered(good, node="compute-0")
    yield "charges of another holder", "accept_charges", answered(good, holder=4)
    [charged] = body.rounds
    for name, changes in {
        "a round of another's slot": {
            "rounds": (charged.model_copy(update={"clients": encode_clients((9,))}),)
        },
        "a round of nobody": {
            "rounds": (charged.model_copy(update={"clients": encode_clients(())}),)
        },
        "a round outside the stretch": {"through": 1},
        "a stretch that goes nowhere": {"through": 0, "rounds": ()},
        "a stretch beyond the ledger": {"through": 6},
    }.items():
        yield name, "accept_charges", answered(as_party("compute-1", body, **changes))


def correlation_cases() -> Iterator[Case]:
    """A report with correlations, and reports in which they are none."""
    report = examples.named("trainer", examples.CORRELATED_REPORT)
    yield "a report with correlations is signed", "sign_document", unsigned(report)
    yield (
        "a report with correlations arrives",
        "accept_document",
        read("posterior_report", report.encode()),
    )
    for name, values in NOT_CORRELATIONS.items():
        wrong = replaced(report.to_json(), ("body", "posterior", "correlation"), doubles(values))
        yield name, "accept_document", read("posterior_report", canonical_json(wrong))
    alone = without(report.to_json(), ("body", "posterior", "convergence"))
    yield (
        "correlations without a convergence",
        "accept_document",
        read("posterior_report", canonical_json(alone)),
    )


def unsigned(signed: Signed[Any]) -> dict[str, Any]:
    client = getattr(signed.body, "client", None)
    key = examples.signing_key(signed.signer) if client is None else examples.client_key(client)
    return {
        "body": signed.body.model_dump(mode="json"),
        "signer": signed.signer,
        "signing_seed": bytes(key).hex(),
    }


def crowd_cases() -> Iterator[Case]:
    trust = TRUST | {"manifest": CROWD_CONSORTIUM.signed_manifest.encode().hex()}
    for kind, signed in sorted(CROWD_DOCUMENTS.items()):
        yield f"{kind} is signed", "sign_document", unsigned(signed)
        yield f"{kind} arrives", "accept_document", read(kind, signed.encode()) | trust
    for instances in (1, 4, 10_000):
        inputs = {"seed": crowd.SEED.hex(), "nonce": crowd.NONCE, "instances": instances}
        yield f"one of {instances} instances", "choose_instances", inputs
    weights = [40_000, -1, 2**40]
    yield "weights by their digest", "digest_weights", {"weights": weights}
    for name, changes in {
        "a logistic step": {},
        "a residual is clipped": {"clipping": "residual", "clip": 0.03125},
        "a linear step": {
            "family": "linear",
            "target": {"name": "smoker", "lower": 0.0, "upper": 2.0},
            "clip": 1.0,
        },
    }.items():
        task = CROWD_TASK.model_dump(mode="json") | changes
        inputs = {"task": task, "weights": weights, "records": crowd.RECORD.tolist()}
        yield name, "take_step", inputs
    several = [[each + 0.25 for each in crowd.RECORD[0].tolist()], *crowd.RECORD.tolist()]
    yield "a step on two records", "take_step", inputs | {"records": several}
    kept = {
        "task": CROWD_TASK.model_dump(mode="json") | {"l2": 0.25},
        "weights": weights,
        "step": [0, 77, 0],
        "noise": [-1000],
    }
    yield "one weight moves", "contribute_step", kept | {"coordinate": 1}
    every = {"task": kept["task"] | {"variant": "all"}, "noise": [5, -1000, 2**52]}
    yield "all weights move", "contribute_step", kept | every | {"coordinate": None}


def as_party(party: str, body: Document, **changes: Any) -> Signed[Any]:
    return sign(body.model_copy(update=changes), party, examples.signing_key(party))


def read(kind: str, document: bytes) -> dict[str, Any]:
    return {"kind": kind, "document": document.hex(), **TRUST}


def spec_cases() -> Iterator[Case]:
    def announced(now: str = "2026-03-01T12:00:00.000Z", **changes: Any) -> dict[str, Any]:
        return {"document": as_party("trainer", SPEC, **changes).encode().hex(), "now": now} | TRUST

    yield "a spec is accepted", "accept_spec", announced()
    yield "an expired spec", "accept_spec", announced(now="2026-03-01T12:01:00.000Z")
    for name, changes in {
        "too little noise for its price": {
            "noise": DiscreteGaussianNoise(scale=SPEC.noise.scale / 2)
        },
        "a price that is not the noise's": {"mu": SPEC.mu / 2},
        "a floor below the policy's": {"dropouts": 5, "minimum_cohort": 7},
        "a floor that dropouts contradict": {"minimum_cohort": 9},
        "a revoked client": {"population": encode_clients([*range(11), 19])},
        "a size that the population contradicts": {"population_size": 13},
        "a foreign node": {"compute_nodes": ("compute-0", "compute-1", "foreign")},
        "nodes in another order": {"compute_nodes": ("compute-1", "compute-0", "compute-2")},
        "a dimension that the query contradicts": {"dimension": 5},
        "a round that never closes": {"give_up_at": SPEC.deadline},
        "a population that is no bitmap": {"population": as_base64(b"nonsense")},
        "a threshold where the policy has none": {
            "sharing": examples.THRESHOLD,
            "proceed_at": examples.THRESHOLD_SPEC.proceed_at,
        },
        "fewer nodes from an early time on, additive": {
            "proceed_at": examples.THRESHOLD_SPEC.proceed_at
        },
    }.items():
        yield name, "accept_spec", announced(**changes)
    threshold, laplace = examples.THRESHOLD_SPEC, examples.LAPLACE_SPEC
    less = laplace.noise.model_copy(update={"scale": laplace.noise.scale / 2})
    for name, under, spec, changes in (
        ("a threshold spec is accepted", examples.THRESHOLD_CONSORTIUM, threshold, {}),
        (
            "a threshold that nobody waits for",
            examples.THRESHOLD_CONSORTIUM,
            threshold,
            {"proceed_at": SPEC.deadline},
        ),
        ("a Laplace spec is accepted", examples.LAPLACE_CONSORTIUM, laplace, {}),
        ("too little Laplace noise", examples.LAPLACE_CONSORTIUM, laplace, {"noise": less}),
        ("Laplace noise of no epsilon", examples.LAPLACE_CONSORTIUM, laplace, {"epsilon": None}),
    ):
        yield (
            name,
            "accept_spec",
            announced()
            | {
                "document": as_party("trainer", spec, **changes).encode().hex(),
                "manifest": under.signed_manifest.encode().hex(),
            },
        )
    forbidden = as_party("trainer", laplace, manifest=SPEC.manifest).encode().hex()
    yield (
        "a mechanism that the policy forbids",
        "accept_spec",
        announced() | {"document": forbidden},
    )


def manifest_cases() -> Iterator[Case]:
    first = CONSORTIUM.signed_manifest

    def pin(document: bytes, digest: str, roster: bytes = ROSTER) -> dict[str, Any]:
        return {"document": document.hex(), "roster": roster.hex(), "pin": digest}

    yield "the pinned manifest", "pin_manifest", pin(first.encode(), CONSORTIUM.digest)
    yield "another pin", "pin_manifest", pin(first.encode(), seed("other").hex())
    short = Roster().encode()
    yield "another roster", "pin_manifest", pin(first.encode(), CONSORTIUM.digest, short)
    forged = sign(first.body, AUTHORITY_NAME, examples.signing_key("foreign authority"))
    yield "a foreign authority", "pin_manifest", pin(forged.encode(), CONSORTIUM.digest)
    named = sign(first.body, "trainer", examples.AUTHORITY)
    yield "not in the authority's name", "pin_manifest", pin(named.encode(), CONSORTIUM.digest)

    grown = with_enrolled(CONSORTIUM.roster, [(examples.signing_key("newcomer").verify_key, 4)])
    changed = with_key(CONSORTIUM.roster, 0, examples.signing_key("newcomer").verify_key)
    file = bytearray(ROSTER)
    file[20:84] = file[52:84] + file[20:52]
    exchanged = Roster.decode(bytes(file))

    def follow(roster: Roster = grown, key: str = AUTHORITY_NAME, **changes: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"sequence": 2, "previous": CONSORTIUM.digest} | changes
        body: Manifest = examples.manifest(of=roster, **fields)
        signed = sign(body, AUTHORITY_NAME, examples.signing_key(key))
        files = {"document": signed.encode().hex(), "next_roster": roster.encode().hex()}
        return files | TRUST

    yield "the next version", "follow_manifest", follow()
    yield "a version left out", "follow_manifest", follow(sequence=3)
    yield "another predecessor", "follow_manifest", follow(previous=seed("other").hex())
    yield "another consortium", "follow_manifest", follow(consortium="another")
    yield "a foreign key", "follow_manifest", follow(key="foreign authority")
    yield "another key of a data holder", "follow_manifest", follow(changed)
    yield "keys of two data holders exchanged", "follow_manifest", follow(exchanged)


def charge_cases() -> Iterator[Case]:
    body = examples.partial_sum(0)
    charge = body.charge.model_dump(mode="json")
    yield "a charge", "charge_hash", {"charge": charge, "round": body.round}
    later = charge | {"job_rounds": 2}
    yield "of the second round", "charge_hash", {"charge": later, "round": body.round}


def certificate_cases() -> Iterator[Case]:
    encoded = examples.CERTIFICATE.encode()
    wire = json.loads(encoded)
    yield "a certificate", "read_certificate", {"bytes": encoded.hex()}
    yield "compressed", "read_certificate", {"bytes": gzip.compress(encoded, mtime=0).hex()}
    for name, value in {
        "without its report": without(wire, ("report",)),
        "without rounds": replaced(wire, ("rounds",), []),
        "an unknown field": replaced(wire, ("kind",), "release_certificate"),
    }.items():
        yield name, "read_certificate", {"bytes": canonical_json(value).hex()}
    yield "not canonical", "read_certificate", {"bytes": json.dumps(wire).encode().hex()}


FILES = {
    "canonical_json": json_cases,
    "sets": set_cases,
    "rosters": roster_cases,
    "sharing": sharing_cases,
    "queries": query_cases,
    "envelopes": envelope_cases,
    "crowds": crowd_cases,
    "documents": document_cases,
    "certificates": certificate_cases,
    "manifests": manifest_cases,
    "charges": charge_cases,
    "rounds": round_cases,
}


def contents(file: str) -> str:
    """Return what stands in the vector file of that name."""
    lines = (
        json.dumps(
            {"name": name, "operation": operation, "inputs": inputs, **outcome(operation, inputs)}
        )
        for name, operation, inputs in FILES[file]()
    )
    return "[\n" + ",\n".join(lines) + "\n]\n"


if __name__ == "__main__":
    for each in FILES:
        (FOLDER / f"{each}.json").write_text(contents(each))
