"""A client written from docs/protocol.md alone, with the standard library and PyNaCl.

It shares no code with the product, so that a rule which the page forgets shows here. Section
numbers are those of the page.
"""

import base64
import hashlib
import hmac
import itertools
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from nacl.exceptions import BadSignatureError
from nacl.public import PublicKey, SealedBox
from nacl.signing import SigningKey, VerifyKey

MODULUS = 2**64
PRIME = 2**61 - 1


class Refused(Exception):
    """A peer's message is not to be believed."""


def require(condition: object, reason: str) -> None:
    if not condition:
        raise Refused(reason)


# Section 2: canonical JSON


def number(value: float) -> str:
    """Write a double as ECMAScript does."""
    require(math.isfinite(value), "not finite")
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if len(text) <= point <= 21:
        text += "0" * (point - len(text))
    elif 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + text
    else:
        text = text[0] + ("." + text[1:] if len(text) > 1 else "") + f"e{point - 1:+d}"
    return "-" * sign + text


def write_json(value: Any) -> bytes:
    def parts(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            members = sorted(value, key=lambda name: name.encode("utf-16-be"))
            yield "{"
            for position, name in enumerate(members):
                yield "," * (position > 0) + json.dumps(name, ensure_ascii=False) + ":"
                yield from parts(value[name])
            yield "}"
        elif isinstance(value, list):
            yield "["
            for position, item in enumerate(value):
                yield "," * (position > 0)
                yield from parts(item)
            yield "]"
        elif isinstance(value, float):
            yield number(value)
        else:
            yield json.dumps(value, ensure_ascii=False)

    return "".join(parts(value)).encode()


def read_json(encoded: bytes) -> Any:
    def integer(text: str) -> float:
        exact = abs(float(text)) < 2**53
        return int(text) if exact else float(text)

    try:
        value = json.loads(encoded.decode(), parse_int=integer)
        again = write_json(value)
    except (ValueError, RecursionError) as error:
        raise Refused("not JSON") from error
    require(again == encoded, "not canonical")
    return value


# Sections 4 and 5: digests, signed documents, roster


def tagged(tag: str, content: bytes) -> bytes:
    return b"shoal/v1/" + tag.encode() + b"\n" + content


def sha256(tag: str, content: bytes) -> str:
    return hashlib.sha256(tagged(tag, content)).hexdigest()


def sign(body: dict[str, Any], signer: str, key: SigningKey) -> bytes:
    signature = key.sign(tagged(body["kind"], write_json(body))).signature.hex()
    return write_json({"body": body, "signature": signature, "signer": signer})


def read_signed(encoded: bytes, kind: str) -> tuple[dict[str, Any], str, str]:
    """Return body, signer and signature of a document of `kind`; check the envelope only."""
    value = read_json(encoded)
    require(isinstance(value, dict) and value.keys() == {"body", "signature", "signer"}, "members")
    body, signature, signer = value["body"], value["signature"], value["signer"]
    require(isinstance(body, dict), "body")
    require(isinstance(signature, str) and re.fullmatch("[0-9a-f]{128}", signature), "signature")
    require(isinstance(signer, str) and re.fullmatch("[a-z0-9][a-z0-9-]{0,62}", signer), "signer")
    require(type(body.get("version")) is int and body["version"] == 1, "version")
    require(body.get("kind") == kind, "kind")
    return body, signer, signature


def verify(body: dict[str, Any], signature: str, key: str) -> None:
    try:
        message = tagged(body["kind"], write_json(body))
        VerifyKey(bytes.fromhex(key)).verify(message, bytes.fromhex(signature))
    except BadSignatureError as error:
        raise Refused("signature") from error


def read_roster(file: bytes) -> list[tuple[int, bytes]]:
    """Return each slot's holder, and the holder's key."""
    require(file[:12] == b"SHOALROSTER\1", "magic")
    count, ranges = struct.unpack("<II", file[12:20].ljust(8, b"\0"))
    end = 20 + 32 * count
    require(len(file) == end + 8 * ranges, "length")
    keys = [file[start : start + 32] for start in range(20, end, 32)]
    enrolled = [key for key in keys if any(key)]
    require(len(set(enrolled)) == len(enrolled), "a key twice")
    given = list(struct.iter_unpack("<II", file[end:]))
    require({holder for holder, _ in given} == set(range(count)), "a range of nobody, or none")
    require(all(slots for _, slots in given), "an empty range")
    require(sum(slots for _, slots in given) < 1 << 32, "too many slots")
    return [(holder, keys[holder]) for holder, slots in given for _ in range(slots)]


# Section 6: sets of clients


def write_set(clients: Iterable[int]) -> str:
    chunks: dict[int, list[int]] = {}
    for client in sorted(set(clients)):
        chunks.setdefault(client >> 16, []).append(client & 0xFFFF)
    payloads, run_flags, heads = [], [], b""
    for key, values in chunks.items():
        members = set(values)
        starts = [value for value in values if value - 1 not in members]
        ends = [value for value in values if value + 1 not in members]
        size, runs = len(values), len(starts)
        as_runs = 2 + 4 * runs < (2 * size if size <= 4096 else 8192)
        if as_runs:
            pairs = (struct.pack("<HH", a, z - a) for a, z in zip(starts, ends, strict=True))
            payload = struct.pack("<H", runs) + b"".join(pairs)
        elif size <= 4096:
            payload = struct.pack(f"<{size}H", *values)
        else:
            bits = bytearray(8192)
            for value in values:
                bits[value // 8] |= 1 << value % 8
            payload = bytes(bits)
        payloads.append(payload)
        run_flags.append(as_runs)
        heads += struct.pack("<HH", key, size - 1)
    count = len(chunks)
    if any(run_flags):
        flags = sum(1 << position for position, flag in enumerate(run_flags) if flag)
        head = struct.pack("<HH", 0x303B, count - 1) + flags.to_bytes((count + 7) // 8, "little")
    else:
        head = struct.pack("<II", 0x303A, count)
    head += heads
    if not any(run_flags) or count >= 4:
        offset = len(head) + 4 * count
        for payload in payloads:
            head += struct.pack("<I", offset)
            offset += len(payload)
    return base64.b64encode(head + b"".join(payloads)).decode()


def read_set(encoded: str) -> set[int]:
    clients: set[int] = set()
    try:
        file = base64.b64decode(encoded, validate=True)
        cookie, high = struct.unpack_from("<HH", file)
        if cookie == 0x303B:
            count, at = high + 1, 4 + (high + 8) // 8
            flags = int.from_bytes(file[4:at], "little")
        else:
            require(cookie == 0x303A, "cookie")
            (count,), at, flags = struct.unpack_from("<I", file, 4), 8, 0
        require(count <= 65_536, "too many chunks")
        heads = [struct.unpack_from("<HH", file, at + 4 * chunk) for chunk in range(count)]
        at += 4 * count + (4 * count if cookie == 0x303A or count >= 4 else 0)
        for chunk, (key, less_one) in enumerate(heads):
            base, size = key << 16, less_one + 1
            if flags >> chunk & 1:
                (runs,) = struct.unpack_from("<H", file, at)
                for run in range(runs):
                    first, more = struct.unpack_from("<HH", file, at + 2 + 4 * run)
                    clients.update(range(base + first, base + first + more + 1))
                    require(len(clients) <= 10_000_000, "too many clients")
                at += 2 + 4 * runs
            elif size <= 4096:
                clients.update(base + value for value in struct.unpack_from(f"<{size}H", file, at))
                at += 2 * size
            else:
                octets = struct.unpack_from("<8192B", file, at)
                clients.update(
                    base + 8 * position + bit
                    for position, octet in enumerate(octets)
                    for bit in range(8)
                    if octet >> bit & 1
                )
                at += 8192
        require(write_set(clients) == encoded, "not canonical")
    except (ValueError, struct.error) as error:
        raise Refused("not a bitmap") from error
    return clients


# Sections 11 and 12: what a round may ask


def smallest_delta(epsilon: float, mu: float) -> float:
    def upper_tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    epsilon -= 1e-6
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return (upper_tail(near) - math.exp(epsilon) * upper_tail(far)) * (1 + 1e-8)


def largest_mu(epsilon: float, delta: float) -> float:
    low, high = 1e-9, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if smallest_delta(epsilon, middle) <= delta else (low, middle)
    return low


def check_spec(
    spec: dict[str, Any], manifest: dict[str, Any], slots: list[tuple[int, bytes]], now: str
) -> None:
    policy, query = manifest["policy"], spec["query"]
    require(now < spec["deadline"], "the deadline has passed")  # times sort as text
    require(spec["opened_at"] < spec["deadline"] < spec["give_up_at"], "times")
    check_sharing(spec, policy)
    require(spec["population_size"] <= 2**20, "population")
    names = [node["name"] for node in manifest["compute_nodes"]]
    require(spec["compute_nodes"] == names, "compute_nodes")
    population = read_set(spec["population"])
    require(len(population) == spec["population_size"], "population_size")
    require(all(slot < len(slots) and any(slots[slot][1]) for slot in population), "enrolled")
    smallest = spec["population_size"] - spec["dropouts"]
    require(spec["minimum_cohort"] == smallest >= policy["minimum_cohort"], "minimum_cohort")
    protecting = smallest - spec["colluders"] - 1
    require(protecting >= 1, "nobody adds noise")
    require(query["name"] in policy["queries"], "query")
    require(spec["noise"]["mechanism"] in policy["mechanisms"], "mechanism")
    gaussian = spec["noise"]["mechanism"] == "discrete_gaussian"
    facts = describe(query, gaussian=gaussian)
    require(spec["dimension"] == facts["dimension"], "dimension")
    scales = [relative * spec["noise"]["scale"] for _, relative in facts["blocks"]]
    d, least = spec["dimension"], min(scales)
    cost = facts["sensitivity"] / spec["noise"]["scale"] * (1 + 1e-10)
    surprise, clients = math.log(2 * d * 2**40), spec["population_size"]
    if gaussian:
        squares = d + 2 * math.sqrt(60 * d) + 120
        fine = least >= 4 and (squares + d) / (6 * protecting * least**2) <= 1e-8
        require(fine, "too coarse a grid")
        mu, epsilon = cost / math.sqrt(protecting), math.inf
        require(spec["epsilon"] is None, "epsilon")
        tail = max(scales) * math.sqrt(2 * clients * surprise)
    else:
        require(1 <= spec["noise"]["scale"] <= 2**54, "scale")
        mu, epsilon = -2 * NormalDist().inv_cdf(1 / (1 + math.exp(cost))), cost
        require(spec["epsilon"] is not None, "epsilon")
        require(is_price(spec["epsilon"], epsilon), "epsilon")
        tail = max(scales) * 8 / 7 * (surprise + clients / protecting * math.log(64 / 15))
    require(is_price(spec["mu"], mu), "mu")
    kept = epsilon <= policy["maximum_epsilon"] * (1 + 1e-12)
    if not kept and policy["delta"] > 0:
        allowed = largest_mu(policy["maximum_epsilon"], policy["delta"])
        kept = mu <= allowed * (1 + 1e-9)  # the margin of my own curve
    require(kept, "too little noise")
    modulus_bits = 64 if spec["sharing"]["scheme"] == "additive" else 61
    largest_sum = spec["population_size"] * facts["largest_value"] + math.ceil(tail)
    require(2 * largest_sum < 2 ** (modulus_bits - 2), "overflow")


def is_price(declared: float, computed: float) -> bool:
    return computed * (1 - 4e-11) <= declared <= computed * (1 + 1e-9)


def check_sharing(spec: dict[str, Any], policy: dict[str, Any]) -> None:
    sharing, nodes = dict(spec["sharing"]), len(spec["compute_nodes"])
    minimum, committee = policy["minimum_threshold"], sharing.pop("committee", nodes)
    if "committee" in spec["sharing"]:
        smallest = policy.get("minimum_committee")
        require(type(committee) is int and 2 <= committee <= 10, "committee")
        require(smallest is not None and smallest <= committee < nodes, "committee")
    if sharing == {"scheme": "additive"}:
        require(spec["proceed_at"] == spec["give_up_at"], "proceed_at")
        return
    threshold = sharing.get("threshold")
    known = sharing == {"scheme": "threshold", "threshold": threshold}
    require(known and type(threshold) is int, "sharing")
    require(minimum is not None and minimum <= threshold <= committee < 2 * threshold, "threshold")
    require(spec["deadline"] < spec["proceed_at"] < spec["give_up_at"], "proceed_at")


# Section 13: queries


def describe(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    """Return dimension, noise blocks, sensitivity and largest value."""
    if query["name"] == "vector_sum":
        query = columns_of_a_vector(query)
    if query["name"] == "gradient_sum":
        return describe_gradients(query, gaussian=gaussian)
    if query["name"] == "counts":
        return describe_counts(query, gaussian=gaussian)
    if query["name"] == "tables":
        return describe_tables(query, gaussian=gaussian)
    if query["name"] == "score_sum":
        return describe_scores(query, gaussian=gaussian)
    if query["name"] == "hazard_score_sum":
        return describe_hazards(query, gaussian=gaussian)
    if query["name"] == "prediction_scores":
        return describe_predictions(query, gaussian=gaussian)

    if query["name"] == "class_score_sum":
        return describe_class_scores(query, gaussian=gaussian)
    m = len(regressed(query))
    p = m + (query["intercept"] > 0)
    r, b = query["records_per_client"], 2 ** query["grid_bits"]
    b2, k = b * b, math.floor(query["intercept"] * b)
    limit = norm_limit(query)
    order = 2 if gaussian else 1
    box = {
        "first_moments": ([2 * b2] * m + [0 if limit is None else k * b], [b2] * m + [k * b]),
        "second_moments": ([b2] * m + [0 if limit is None else k * k], [b2] * m + [k * k]),
        "norm_counts": ([b2, b2], [b2]),
        "column_moments": (
            [2 * b2 if gaussian else 9 / 4 * b2] * m,
            [b2 * math.sqrt(64 / 17) if gaussian else 2 * b2] * m,
        ),
    }
    if query["name"] in box:
        changed, left_out = (norm(each, order) for each in box[query["name"]])
        if limit is not None and query["name"] == "first_moments":
            most = b * math.sqrt(limit if gaussian else limit * p)
            changed, left_out = min(changed, 2 * most), min(left_out, most)
        if limit is not None and query["name"] == "second_moments":
            changed = min(changed, limit * (math.sqrt(2) if gaussian else 2))
            left_out = min(left_out, limit)
        blocks = [(27 if query["name"] == "norm_counts" else p, 1.0)]
        if query["name"] == "column_moments":
            blocks = [(m, 1.0), (m, math.sqrt(17 / 47) if gaussian else 1.0)]
        return with_count(blocks, changed, left_out, unit=b2, r=r, gaussian=gaussian)
    pairs = p * (p - 1) // 2
    if p == 1:
        top = b2 if limit is None else limit
        return with_count([(1, 1.0)], top, top, unit=b2, r=r, gaussian=gaussian)
    left_out = norm([b2] * (m * (m + 1) // 2) + [k * b] * m + [k * k], order)
    changed = m * b2 + k * k
    if not gaussian:
        changed = left_out if limit is not None else left_out - k * k * (m + 2) / (2 * m + 2)
    found = with_count([(p, 1.0), (pairs, 1.0)], changed, left_out, unit=b2, r=r, gaussian=gaussian)
    if limit is None:
        return found
    most = limit * (1 if gaussian else math.sqrt(p * (p + 1) / 2))
    ball = with_count(
        [(p, 1.0), (pairs, math.sqrt(0.5))],
        math.sqrt(2) * most,
        most,
        unit=b2,
        r=r,
        gaussian=gaussian,
    )
    in_the_ball = ball["sensitivity"] ** 2 * (p + pairs / 2)
    return ball if gaussian or in_the_ball < found["sensitivity"] ** 2 * (p + pairs) else found


def columns_of_a_vector(query: dict[str, Any]) -> dict[str, Any]:
    [column] = query["columns"]
    columns = [column | {"name": f"{column['name']}_{i}"} for i in range(query["entries"])]
    return query | {"name": "first_moments", "columns": columns}


def norm(entries: list[float], order: int) -> float:
    return math.sqrt(sum(each**2 for each in entries)) if order == 2 else float(sum(entries))


def with_count(
    blocks: list[tuple[int, float]],
    changed: float,
    left_out: float,
    *,
    unit: int,
    r: int,
    gaussian: bool,
) -> dict[str, Any]:
    if gaussian:
        reach = max(math.sqrt(max(changed**2 - left_out**2, 0)), left_out / 4)
        sensitivity = max(changed, math.hypot(left_out, reach))
    else:
        reach = max(changed - left_out, left_out / 16)
        sensitivity = max(changed, left_out + reach)
    return {
        "dimension": sum(size for size, _ in blocks) + 1,
        "blocks": [*blocks, (1, unit / reach)],
        "sensitivity": r * sensitivity,
        "largest_value": r * unit,
    }


def describe_scores(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    s, r = len(query["basis"]) or len(regressed(query)), query["records_per_client"]
    n = math.sqrt(s + 1)
    changed, left_out = 2 * n + 1 / 2, 3 / 2 * n + 1 / 2
    if gaussian:
        changed, left_out = math.sqrt(17 / 4), math.sqrt(7 / 4)
    blocks = [(s, 1.0), (s, (math.sqrt(2) if gaussian else 2) * r), (1, 2.0)]
    return scores_with_count(query, blocks, changed, left_out, gaussian=gaussian)


def scores_with_count(
    query: dict[str, Any],
    blocks: list[tuple[int, float]],
    changed: float,
    left_out: float,
    *,
    gaussian: bool,
) -> dict[str, Any]:
    b2, r = 4 ** query["grid_bits"], query["records_per_client"]
    bounds = changed * b2, left_out * b2
    found = with_count(blocks, *bounds, unit=b2, r=r, gaussian=gaussian)
    return found | {"largest_value": b2 * r * r}


def describe_hazards(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    s, r = len(query["basis"]) or len(query["columns"]) - 2, query["records_per_client"]
    p = s + 2 * (len(query["edges"]) - 1)
    once = 2 * query["intercept"] / query["radius"] * (1 + 1e-9)
    changed, left_out = 2.0, math.sqrt(3 / 2)
    if not gaussian:
        n, whole = math.sqrt(s + 1), math.sqrt(p + 1)
        changed, left_out = 2 * (once + n), once + 3 / 2 * n
        if 2 * whole < changed:
            changed, left_out = 2 * whole, 3 / 2 * whole
    blocks = [(p, 1.0), (s, (math.sqrt(2) if gaussian else 2) * r)]
    return scores_with_count(query, blocks, changed, left_out, gaussian=gaussian)


def describe_predictions(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    b, limit, classes = 2 ** query["grid_bits"], query["score_limit"], query["family"] == "logistic"
    q = min(1, (math.floor(b * (math.exp(-limit) if classes else 1 - math.sqrt(limit))) + 1) / b)
    rest = 3 if classes else 4
    alone = math.sqrt(rest + 0.25 + q * q) if gaussian else rest + 0.5 + q
    size = len(query["points"]) * ((2 if classes else 3) + 3 * query["bins"])
    changed = alone * (math.sqrt(2) if gaussian else 2) * b * b
    r = query["records_per_client"]
    return with_count([(size, 1.0)], changed, alone * b * b, unit=b * b, r=r, gaussian=gaussian)


def describe_class_scores(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    classes, r = query["classes"], query["records_per_client"]
    s = len(query["basis"]) or len(query["columns"]) - classes + 1
    n = classes * s
    changed, left_out = 2.0, math.sqrt(3 / 2)
    if not gaussian:
        left_out, root = math.sqrt(2 * s) + 1 / 2, math.sqrt(n + 1)
        changed = 2 * left_out
        if 2 * root < changed:
            changed, left_out = 2 * root, 3 / 2 * root
    blocks = [(n, 1.0), (n, (math.sqrt(2) if gaussian else 2) * r)]
    return scores_with_count(query, blocks, changed, left_out, gaussian=gaussian)


def describe_gradients(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    r, d = query["records_per_client"], len(query["point"])
    limit = math.floor((Fraction(query["clip"]) * 2 ** query["grid_bits"]) ** 2)
    return {
        "dimension": d,
        "blocks": [(d, 1.0)],
        "sensitivity": 2 * r * math.sqrt(limit) * (1 if gaussian else math.sqrt(d)),
        "largest_value": r * math.isqrt(limit),
    }


def describe_counts(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    unit, cells = 2 ** query["grid_bits"], cells_of(query["cut"])
    both = (math.sqrt(2) if gaussian else 2) * unit
    r = query["records_per_client"]
    return with_count([(cells, 1.0)], both, unit, unit=unit, r=r, gaussian=gaussian)


def describe_tables(query: dict[str, Any], *, gaussian: bool) -> dict[str, Any]:
    unit, r = 2 ** query["grid_bits"], query["records_per_client"]
    scales = [table["scale"] for table in query["tables"]]
    order = 2 if gaussian else 1
    once = sum(scale**-order for scale in scales)
    sizes = [math.prod(table_shape(query, table)) + 1 for table in query["tables"]]
    changed, left_out = ((each * once) ** (1 / order) * unit for each in (2, 1))
    blocks = list(zip(sizes, scales, strict=True))
    return with_count(blocks, changed, left_out, unit=unit, r=r, gaussian=gaussian)


def table_shape(query: dict[str, Any], table: dict[str, Any]) -> list[int]:
    cuts = [(query["cuts"][axis["cut"]], axis["merged"]) for axis in table["axes"]]
    return [cells_of(cut) // merged for cut, merged in cuts]


def cells_of(cut: dict[str, Any]) -> int:
    return len(cut["edges"]) - 1 if cut["kind"] == "edges" else len(cut["levels"]) + 1


def cell_of(cut: dict[str, Any], value: float) -> int:
    if cut["kind"] == "edges":  # of what is below the first, and from the last on, too
        return sum(edge <= value for edge in cut["edges"][1:-1])
    levels = cut["levels"]
    return int(levels.index(value)) if value in levels else len(levels)


def table_cell(query: dict[str, Any], table: dict[str, Any], record: list[Any]) -> int:
    shape, cell = table_shape(query, table), 0
    for axis, size in zip(table["axes"], shape, strict=True):
        cut = query["cuts"][axis["cut"]]
        value, said = record[cut["column"]], 0.0
        if cut["indicator"] is not None:
            said = record[cut["indicator"]]
        if value is None or said is None or said == 1:  # null stands for what is missing
            return math.prod(shape)
        cell = cell * size + cell_of(cut, value) // axis["merged"]
    return cell


def norm_limit(query: dict[str, Any]) -> int | None:
    if query["radius"] is None:
        return None
    p = len(regressed(query)) + (query["intercept"] > 0)
    limit = math.floor((Fraction(query["radius"]) * 2 ** query["grid_bits"]) ** 2)
    return limit if limit < p * 4 ** query["grid_bits"] else None


def evaluate(query: dict[str, Any], records: list[list[float]]) -> list[int]:
    """Return the client's integers."""
    if query["name"] == "vector_sum":
        query = columns_of_a_vector(query)
    if len(records) > query["records_per_client"]:
        raise ValueError("wrong number of records")
    records = [each for each in records if has_levels(query["columns"], each)]
    if query["name"] == "gradient_sum":
        vectors = [gradient_row(query, record) for record in records]
        return [sum(entries) for entries in zip([0] * len(query["point"]), *vectors, strict=True)]
    if query["name"] == "tables":
        counts = []
        for table in query["tables"]:
            cells = [table_cell(query, table, record) for record in records]
            size = math.prod(table_shape(query, table)) + 1
            counts += [cells.count(each) for each in range(size)]
        return [count * 2 ** query["grid_bits"] for count in [*counts, len(records)]]
    if query["name"] == "counts":
        found = [cell_of(query["cut"], value) for [value] in records]
        cells = [found.count(each) for each in range(cells_of(query["cut"]))]
        return [cell * 2 ** query["grid_bits"] for cell in [*cells, len(records)]]
    counted = len(records) * 4 ** query["grid_bits"]
    if query["name"] == "prediction_scores":
        return [*prediction_sums(query, records), counted]
    if query["name"] == "score_sum":
        found = [score(query, record) for record in records]
        cut = sum(beyond for _, beyond in found) * 4 ** query["grid_bits"]
        s = len(query["basis"]) or len(regressed(query))
        return [*sum_and_its_squares(query, [row for row, _ in found], s, s), cut, counted]
    if query["name"] == "hazard_score_sum":
        rows = [hazard_row(query, record) for record in records]
        s = len(query["basis"]) or len(query["columns"]) - 2
        p = s + 2 * (len(query["edges"]) - 1)
        return [*sum_and_its_squares(query, rows, p, s), counted]
    if query["name"] == "class_score_sum":
        rows, classes = [class_score(query, record) for record in records], query["classes"]
        n = classes * (len(query["basis"]) or len(query["columns"]) - classes + 1)
        return [*sum_and_its_squares(query, rows, n, n), counted]
    rows = [lattice_row(query, record) for record in records]
    p = len(regressed(query)) + (query["intercept"] > 0)
    if query["name"] == "column_moments":
        return [*sums_and_squares(query, rows), counted]
    if query["name"] == "first_moments":
        sums = [2 ** query["grid_bits"] * sum(row[i] for row in rows) for i in range(p)]
        return [*sums, counted]
    if query["name"] == "norm_counts":
        return [*norm_counts(query, rows), counted]
    pairs = [(i, i) for i in range(p)]
    if query["name"] in ("second_moment_matrix", "weighted_row_matrix"):
        pairs += [(i, j) for i in range(p) for j in range(i + 1, p)]
    return [*(sum(row[i] * row[j] for row in rows) for i, j in pairs), counted]


def regressed(query: dict[str, Any]) -> list[dict[str, Any]]:
    return query["columns"][: -1 if query.get("record_weights") else None]


def share(query: dict[str, Any], row: list[float]) -> tuple[list[float], float]:
    """Return a row in the box without its weight, and the weight over the largest."""
    if not query["record_weights"]:
        return row, 1.0
    last = query["columns"][-1]
    weight = (last["centre"] + last["scale"] * row[-1]) / (last["centre"] + last["scale"])
    return row[:-1], max(0.0, min(1.0, weight))


def sum_and_its_squares(
    query: dict[str, Any], rows: list[list[int]], width: int, squared: int
) -> list[int]:
    """Return B times the sum of a client's rows, and the squares of its last coordinates."""
    total = [sum(row[i] for row in rows) for i in range(width)]
    squares = [each * each for each in total[width - squared :]]
    return [*(2 ** query["grid_bits"] * each for each in total), *squares]


def in_the_basis(query: dict[str, Any], x: list[float]) -> list[float]:
    if not query["basis"]:
        return x
    return [sum(a * b for a, b in zip(row, x, strict=False)) for row in query["basis"]]


def sums_and_squares(query: dict[str, Any], rows: list[list[int]]) -> list[int]:
    columns = [[row[i] for row in rows] for i in range(len(query["columns"]))]
    sums = [2 ** query["grid_bits"] * sum(column) for column in columns]
    return [*sums, *(sum(w * w for w in column) for column in columns)]


def norm_counts(query: dict[str, Any], rows: list[list[int]]) -> list[int]:
    b = 2 ** query["grid_bits"]
    top = norm_limit(query)
    if top is None:
        top = len(query["columns"]) * b * b + math.floor(query["intercept"] * b) ** 2
    counts = [0] * 27
    for row in rows:
        square = sum(w * w for w in row)
        fits = [j for j in range(26) if square <= top * 1.15 ** (2 * (j - 26))]
        counts[min(fits, default=26)] += b * b
    return counts


def lattice_row(query: dict[str, Any], record: list[float]) -> list[int]:
    if not all(map(math.isfinite, record)):
        raise ValueError("a value is not finite")
    columns = zip(design(query["columns"], record), query["columns"], strict=True)
    row = [max(-1.0, min(1.0, (x - c["centre"]) / c["scale"])) for x, c in columns]
    counts = 1.0
    if query["name"] == "weighted_row_matrix":
        row, counts = share(query, row)
    if query["intercept"] > 0:
        row = [query["intercept"], *row]
    if query["name"] == "weighted_row_matrix":
        *features, target = row
        radius = query["radius"] / math.sqrt(1.49)
        if query["unit_rows"]:
            constant = [features.pop(0)] if query["intercept"] > 0 else []
            length = math.sqrt(radius**2 - query["intercept"] ** 2)
            features = [length / max(math.hypot(*features), 1e-12) * x for x in features]
            weight, features = 1.0, [*constant, *features]
        else:
            weight = radius / max(radius, math.hypot(*features))
        row = [weight * math.sqrt(counts) * x for x in (*features, 0.7 * radius * target)]
    return onto_the_grid(row, query["radius"], norm_limit(query), query["grid_bits"])


def score(query: dict[str, Any], record: list[float]) -> tuple[list[int], bool]:
    """Return a record's score, and whether its residual was cut."""
    if not all(map(math.isfinite, record)):
        raise ValueError("a value is not finite")
    columns = zip(design(query["columns"], record), query["columns"], strict=True)
    whole = [max(-1.0, min(1.0, (x - c["centre"]) / c["scale"])) for x, c in columns]
    (*features, last), counts = share(query, whole)
    row, radius = [query["intercept"], *features], query["radius"]
    predictor = sum(x * u for x, u in zip(row, query["point"], strict=True))
    mean = predictor
    if query["family"] != "normal":
        mean = math.exp(max(-30.0, min(30.0, predictor)))
    target = regressed(query)[-1]
    y, a = target["centre"] + target["scale"] * last, query["dispersion"]
    if query["family"] in ("normal", "poisson"):
        residual = y - mean
    elif query["family"] == "logistic":
        residual = (last > 0) - mean / (1 + mean)
    elif query["family"] == "gamma":
        residual = (y - mean) / (a + mean)
    else:
        residual = (y - mean) / (1 + a * mean)
    limit = query["residual_cut"]
    cut = max(-limit, min(limit, residual))
    z = in_the_basis(query, row)
    weight = radius / max(radius, math.hypot(*z))
    scaled = [each * weight * (cut / limit) / radius * counts for each in z]
    bits = query["grid_bits"]
    return onto_the_grid(scaled, 1.0, 4**bits, bits), cut != residual


def hazard_row(query: dict[str, Any], record: list[float]) -> list[int]:
    if not all(map(math.isfinite, record)):
        raise ValueError("a value is not finite")
    columns = zip(design(query["columns"], record), query["columns"], strict=True)
    *x, at, last = [max(-1.0, min(1.0, (v - c["centre"]) / c["scale"])) for v, c in columns]
    edges, cut = query["edges"], query["hazard_cut"]
    time = query["columns"][-2]["centre"] + query["columns"][-2]["scale"] * at
    logs, slopes = query["point"][: len(edges) - 1], query["point"][len(edges) - 1 :]
    along = sum(each * slope for each, slope in zip(x, slopes, strict=True))
    passed = [0.0]
    for log, begin, end in zip(logs, edges, edges[1:], strict=False):
        spent = max(0.0, min(time, end) - begin)
        passed.append(passed[-1] + math.exp(max(-30.0, min(30.0, log + along))) * spent)
    counted = last > 0 and time <= edges[-1] and passed[-1] <= cut
    ended = next((j for j, end in enumerate(edges[1:]) if time <= end), None)
    d = [float(counted and j == ended) for j in range(len(logs))]
    m = [min(b, cut) - min(a, cut) for a, b in itertools.pairwise(passed)]
    k, radius = query["intercept"], query["radius"]
    z = in_the_basis(query, x)
    weight = radius / max(radius, math.hypot(k, *z)) / (cut * radius)
    row = [*(k * each for each in (*d, *m)), *((sum(d) - sum(m)) * each for each in z)]
    bits = query["grid_bits"]
    return onto_the_grid([weight * each for each in row], 1.0, 4**bits, bits)


def prediction_sums(query: dict[str, Any], records: list[list[float]]) -> list[int]:
    b, bins, points = 2 ** query["grid_bits"], query["bins"], query["points"]
    first = 2 if query["family"] == "logistic" else 3
    blocks = [[0] * (first + 3 * bins) for _ in points]
    target = query["columns"][-1 - len(points)]
    for record in records:
        columns = zip(design(query["columns"], record), query["columns"], strict=True)
        units = [max(-1.0, min(1.0, (x - c["centre"]) / c["scale"])) for x, c in columns]
        *features, u = units[: -len(points)]
        sites = [k for k, at in enumerate(units[-len(points) :]) if at > 0]
        if not sites:
            continue
        constant, *slopes = points[sites[0]]
        predictor = constant + sum(x * t for x, t in zip(features, slopes, strict=True))
        odds = math.exp(max(-30.0, min(30.0, predictor)))
        if query["family"] == "logistic":
            y, p = float(u > 0), odds / (1 + odds)
            scores = [math.log(1 + (1 / odds if y else odds))]
        else:
            mean = predictor if query["family"] == "normal" else odds
            y, p = (1 + u) / 2, (1 + (mean - target["centre"]) / target["scale"]) / 2
            p = max(0.0, min(1.0, p))
            scores = [(y - p) ** 2, query["score_limit"] * (2 * y - 1) ** 2]
        block, place = blocks[sites[0]], min(math.floor(p * bins), bins - 1)
        for at, each in enumerate(scores):
            block[at] += math.floor(b * min(1.0, each / query["score_limit"]))
        block[first - 1] += b // 2 if scores[0] >= query["score_limit"] else 0
        for at, each in enumerate([1.0, p, y]):
            block[first + at * bins + place] += math.floor(b * each)
    return [b * each for block in blocks for each in block]


def class_score(query: dict[str, Any], record: list[float]) -> list[int]:
    if not all(map(math.isfinite, record)):
        raise ValueError("a value is not finite")
    columns = zip(design(query["columns"], record), query["columns"], strict=True)
    boxed = [max(-1.0, min(1.0, (x - c["centre"]) / c["scale"])) for x, c in columns]
    count, radius = query["classes"], query["radius"]
    row, said = [query["intercept"], *boxed[:-count]], [u > 0 for u in boxed[-count:]]
    sizes = []
    for k in range(count):
        point = query["point"][k * len(row) : (k + 1) * len(row)]
        predictor = sum(x * u for x, u in zip(row, point, strict=True))
        sizes.append(math.exp(max(-30.0, min(30.0, predictor))))
    residuals = [-size / sum(sizes) for size in sizes]
    if any(said):
        residuals[said.index(True)] += 1.0
    z = in_the_basis(query, row)
    weight = radius / max(radius, math.hypot(*z)) / (math.sqrt(2) * radius)
    bits = query["grid_bits"]
    return onto_the_grid([e * each * weight for e in residuals for each in z], 1.0, 4**bits, bits)


def values_of(columns: list[dict[str, Any]], record: list[float]) -> dict[str, float]:
    read = [
        factor["variable"] if column["term"] else column["name"]
        for column in columns
        for factor in (column["term"] or {"factors": [column]})["factors"]
    ]
    return dict(zip(dict.fromkeys(read), record, strict=True))


def has_levels(columns: list[dict[str, Any]], record: list[float]) -> bool:
    """Whether a record has one of the levels wherever a factor says among which it is to be."""
    factors = [each for column in columns if column["term"] for each in column["term"]["factors"]]
    listing = [each for each in factors if each.get("among")]
    values = values_of(columns, record) if listing else {}
    return all(values[each["variable"]] in each["among"] for each in listing)


def design(columns: list[dict[str, Any]], record: list[float]) -> list[float]:
    values = values_of(columns, record)
    return [
        values[column["name"]]
        if column["term"] is None
        else math.prod(
            factor_of(each, values[each["variable"]]) for each in column["term"]["factors"]
        )
        for column in columns
    ]


def factor_of(factor: dict[str, Any], value: float) -> float:
    if factor["kind"] == "level":
        return float(value == factor["value"])
    cut = max(factor["lower"], min(factor["upper"], value))
    if factor["kind"] == "centred":
        return cut - factor["at"]
    if factor["kind"] == "legendre":
        middle, half = (factor["upper"] / 2 + sign * factor["lower"] / 2 for sign in (1, -1))
        return max(-1.0, min(1.0, legendre(factor["degree"], (cut - middle) / half)))
    if factor["kind"] == "power":
        return math.prod([cut] * factor["exponent"])
    if factor["kind"] == "log":
        return math.log(cut)
    knots = [factor["lower"]] * 4 + factor["knots"] + [factor["upper"]] * 4
    return spline(knots, factor["place"], 3, cut)


def legendre(degree: int, z: float) -> float:
    if degree < 2:
        return z if degree else 1.0
    last, before = legendre(degree - 1, z), legendre(degree - 2, z)
    return ((2 * degree - 1) * z * last - (degree - 1) * before) / degree


def spline(knots: list[float], place: int, degree: int, x: float) -> float:
    first, second = knots[place], knots[place + 1]
    if degree == 0:
        return float(first <= x < second or first < second == x == knots[-1])
    found, last, end = 0.0, knots[place + degree], knots[place + degree + 1]
    if last > first:
        found += (x - first) / (last - first) * spline(knots, place, degree - 1, x)
    if end > second:
        found += (end - x) / (end - second) * spline(knots, place + 1, degree - 1, x)
    return found


def gradient_row(query: dict[str, Any], record: list[float]) -> list[int]:
    if not all(map(math.isfinite, record)):
        raise ValueError("a value is not finite")
    columns = zip(design(query["columns"], record), query["columns"], strict=True)
    *features, last = [max(-1.0, min(1.0, (x - c["centre"]) / c["scale"])) for x, c in columns]
    model = query["model"]
    row = [model["intercept"], *features] if model["intercept"] > 0 else features
    predictor = sum(x * u for x, u in zip(row, query["point"], strict=True))
    surprise = (last > 0) - 1 / (1 + math.exp(-predictor))
    limit = math.floor((Fraction(query["clip"]) * 2 ** query["grid_bits"]) ** 2)
    gradient = [surprise * x for x in row]
    return onto_the_grid(gradient, query["clip"], limit, query["grid_bits"])


def onto_the_grid(
    row: list[float], radius: float | None, limit: int | None, grid_bits: int
) -> list[int]:
    if limit is not None and radius is not None:
        norm = math.sqrt(sum(x * x for x in row))
        row = [x * (radius / max(radius, norm)) for x in row]
    integers = [math.trunc(x * 2**grid_bits) for x in row]
    while limit is not None and sum(w * w for w in integers) > limit:
        longest = max(range(len(integers)), key=lambda j: abs(integers[j]))
        integers[longest] -= 1 if integers[longest] > 0 else -1
    return integers


# Sections 15 and 16: sharing and envelopes


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """RFC 8439, section 2.3."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    start += [*struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    s = start.copy()

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xFFFFFFFF
            s[z] ^= s[x]
            s[z] = (s[z] << turn | s[z] >> (32 - turn)) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            quarter(
                diagonal,
                4 + (diagonal + 1) % 4,
                8 + (diagonal + 2) % 4,
                12 + (diagonal + 3) % 4,
            )
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(start, s, strict=True)))


def words(seed: bytes, nonce: bytes) -> Iterator[int]:
    for block in itertools.count():
        yield from struct.unpack("<8Q", chacha20_block(seed, block, nonce))


def stream(seed: bytes, dimension: int) -> list[int]:
    return list(itertools.islice(words(seed, b"shoal-share1"), dimension))


def field_stream(seed: bytes, dimension: int) -> list[int]:
    lowest = (word & PRIME for word in words(seed, b"shoal-field1"))
    return list(itertools.islice((word for word in lowest if word != PRIME), dimension))


def members(sharing: dict[str, Any], holder: int, nodes: int) -> tuple[list[int], int]:
    """Return the nodes that get shares, in order, and by what their kinds rotate."""
    committee = sharing.get("committee")
    if committee is None:
        return list(range(nodes)), holder
    return [(holder + place) % nodes for place in range(committee)], holder // nodes


def split(
    values: list[int], holder: int, nodes: int, draw: Callable[[int], bytes]
) -> list[tuple[int, bytes]]:
    """Return kind and payload of each node's share."""
    rest, shares = [value % MODULUS for value in values], {}
    for node in range(nodes):
        if node != holder % nodes:
            shares[node] = (0, draw(32))
            others = stream(shares[node][1], len(rest))
            rest = [(a - b) % MODULUS for a, b in zip(rest, others, strict=True)]
    shares[holder % nodes] = (1, struct.pack(f"<{len(rest)}Q", *rest))
    return [shares[node] for node in range(nodes)]


def value_at(x: int, points: dict[int, int]) -> int:
    """Return the value at `x` of the polynomial through `points`, modulo p."""
    value = 0
    for at, y in points.items():
        for other in points:
            if other != at:
                y = y * (x - other) * pow(at - other, -1, PRIME) % PRIME
        value += y
    return value % PRIME


def split_by_threshold(
    values: list[int], holder: int, nodes: int, threshold: int, draw: Callable[[int], bytes]
) -> list[tuple[int, bytes]]:
    """Return kind and payload of each node's share."""
    seeded = [node for node in range(nodes) if (node - holder) % nodes > nodes - threshold]
    seeds = {node: draw(32) for node in seeded}
    streams = {node: field_stream(seeds[node], len(values)) for node in seeded}
    shares = []
    for node in range(nodes):
        if node in seeds:
            shares.append((0, seeds[node]))
            continue
        share = [
            value_at(node + 1, {0: value % PRIME} | {each + 1: streams[each][i] for each in seeded})
            for i, value in enumerate(values)
        ]
        shares.append((1, struct.pack(f"<{len(share)}Q", *share)))
    return shares


def envelope(
    share: tuple[int, bytes],
    *,
    node: int,
    holder: int,
    manifest: str,
    round_id: str,
    answer: bytes,
    box_key: str,
    key: SigningKey,
) -> bytes:
    kind, payload = share
    header = b"SHOAL" + struct.pack("<BBBI", 1, kind, node, holder)
    header += bytes.fromhex(manifest) + bytes.fromhex(round_id) + answer
    context = hashlib.sha256(tagged("share_context", header)).digest()
    box = SealedBox(PublicKey(bytes.fromhex(box_key))).encrypt(context + payload)
    return header + box + key.sign(tagged("share_envelope", header + box)).signature


def receipt_query(envelope: bytes) -> bytes:
    """Return the question to a node whether it holds this envelope."""
    return envelope[8:12] + hashlib.sha256(tagged("stored_share_envelope", envelope[:-64])).digest()


class Client:
    """A data holder with one key, that pinned one manifest."""

    def __init__(self, manifest: bytes, roster: bytes, pin: str, key: SigningKey) -> None:
        body, signer, signature = read_signed(manifest, "manifest")
        require(sha256("manifest", write_json(body)) == pin, "pin")
        require(signer == "authority", "signer")
        verify(body, signature, body["authority"])
        require(sha256("roster", roster) == body["roster"]["digest"], "roster")
        self.slots = read_roster(roster)
        require(len(self.slots) == body["roster"]["clients"], "roster")
        self.manifest, self.digest, self.key = body, pin, key
        own = [slot for slot, (_, each) in enumerate(self.slots) if each == bytes(key.verify_key)]
        self.client, self.holder = own[0], self.slots[own[0]][0]

    def join(self, request: bytes) -> bytes:
        """Return a signed join of the job that an analyst asks for."""
        body, signer, signature = read_signed(request, "job_request")
        require(body["manifest"] == self.digest and body["analyst"] == signer, "job")
        analysts = {analyst["name"]: analyst for analyst in self.manifest["analysts"]}
        require(signer in analysts, "analyst")
        verify(body, signature, analysts[signer]["verify_key"])
        self.job, self.sharing = sha256("job_request", write_json(body)), body["sharing"]
        join = {"kind": "membership", "version": 1, "manifest": self.digest, "state": "joined"}
        return sign(join | {"job": self.job, "holder": self.holder}, "holder", self.key)

    def answer(
        self,
        signed_spec: bytes,
        records: list[list[float]],
        noise: list[int],
        draw: Callable[[int], bytes],
        now: str,
    ) -> list[bytes]:
        """Return one envelope for each of its Compute nodes; noise was drawn by section 14."""
        spec, signer, signature = read_signed(signed_spec, "round_spec")
        require(spec["manifest"] == self.digest and spec["job"] == self.job, "round")
        require(signer == self.manifest["trainer"]["name"], "trainer")
        verify(spec, signature, self.manifest["trainer"]["verify_key"])
        check_spec(spec, self.manifest, self.slots, now)
        require(spec["sharing"] == self.sharing, "another sharing than the job's")
        require(self.client in read_set(spec["population"]), "not in the population")
        values = evaluate(spec["query"], records)
        noisy = [value + draw_ for value, draw_ in zip(values, noise, strict=True)]
        secret = hashlib.sha256(bytes(self.key)).digest()
        content = struct.pack(f"<{len(noisy)}q", *noisy) + draw(32)
        answer = hmac.digest(secret, content, "sha256")[:16]
        nodes, threshold = self.manifest["compute_nodes"], spec["sharing"].get("threshold")
        mine, turn = members(spec["sharing"], self.holder, len(nodes))
        if threshold is None:
            shares = split(noisy, turn, len(mine), draw)
        else:
            shares = split_by_threshold(noisy, turn, len(mine), threshold, draw)
        return [
            envelope(
                share,
                node=node,
                holder=self.holder,
                manifest=self.digest,
                round_id=sha256("round_spec", write_json(spec)),
                answer=answer,
                box_key=nodes[node]["box_key"],
                key=self.key,
            )
            for node, share in zip(mine, shares, strict=True)
        ]
