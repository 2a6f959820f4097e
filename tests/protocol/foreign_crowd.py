"""A crowd's client written from docs/protocol.md, section 23, alone; it shares no product code."""

import hashlib
import hmac
import math
from fractions import Fraction
from typing import Any

from tests.protocol.foreign_client import sha256, tagged, write_json

LARGEST = 2**52


def chosen(seed: bytes, tag: str, nonce: str, instances: int) -> int:
    code = hmac.new(seed, tagged(tag, bytes.fromhex(nonce)), hashlib.sha256).digest()
    return int.from_bytes(code, "big") % instances


def choose_instances(given: dict[str, Any]) -> dict[str, Any]:
    seed = bytes.fromhex(given["seed"])
    tags = ("crowd_draw", "crowd_replacement")
    return {
        "digest": sha256("crowd_seed", seed),
        "values": [chosen(seed, tag, given["nonce"], given["instances"]) for tag in tags],
    }


def digest_weights(given: dict[str, Any]) -> dict[str, Any]:
    return {"digest": sha256("crowd_weights", write_json(given["weights"]))}


def to_box(value: float, bounds: dict[str, Any]) -> float:
    centre = bounds["lower"] / 2 + bounds["upper"] / 2
    half = bounds["upper"] / 2 - bounds["lower"] / 2
    return min(max((value - centre) / half, -1.0), 1.0)


def take_step(given: dict[str, Any]) -> dict[str, Any]:
    task, records = given["task"], given["records"]
    grid, limit = 2.0 ** task["grid_bits"], math.floor(task["clip"] * 2.0 ** task["grid_bits"])
    each = [score_of(task, record, given["weights"]) for record in records]
    means = [math.fsum(steps) / len(records) for steps in zip(*each, strict=True)]
    return {"values": [math.trunc(min(max(mean * grid, -limit), limit)) for mean in means]}


def score_of(task: dict[str, Any], record: list[float], weights: list[int]) -> list[float]:
    grid = 2.0 ** task["grid_bits"]
    row = [to_box(value, of) for value, of in zip(record, task["features"], strict=False)]
    row = [1.0, *row] if task["intercept"] else row
    target = to_box(record[-1], task["target"])
    predictor = math.fsum(x * w / grid for x, w in zip(row, weights, strict=True))
    if task["family"] == "linear":
        mean = predictor
    elif task["family"] == "logistic":
        target, mean = float(target > 0.0), 0.5 * (1.0 + math.tanh(predictor / 2.0))
    else:
        target = (target + 1.0) * task["target"]["upper"] / 2.0
        mean = math.exp(min(predictor, math.log(task["target"]["upper"])))
    score = task["learning_rate"] * (target - mean)
    if task["clipping"] == "residual":
        score = min(max(score, -task["clip"]), task["clip"])
    return [score * x for x in row]


def contribute_step(given: dict[str, Any]) -> dict[str, Any]:
    task, sent = given["task"], list(given["weights"])
    touched = range(len(sent)) if given["coordinate"] is None else [given["coordinate"]]
    kept = Fraction(1.0 - task["learning_rate"] * task["l2"])
    for place, noise in zip(touched, given["noise"], strict=True):
        decayed = math.trunc(float(sent[place] * kept))
        sent[place] = min(max(decayed + given["step"][place] + noise, -LARGEST), LARGEST)
    return {"values": sent}


OPERATIONS = {
    each.__name__: each for each in (choose_instances, digest_weights, take_step, contribute_step)
}
