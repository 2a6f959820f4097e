"""The golden vectors: what is published for other implementations is what this one does."""

import json
from typing import Any

import pytest

from tests.vectors.make_vectors import FILES, FOLDER, contents
from tests.vectors.operations import OPERATIONS, outcome

VECTORS = [
    pytest.param(vector, id=f"{file}: {vector['name']} ({vector['operation']})")
    for file in FILES
    for vector in json.loads((FOLDER / f"{file}.json").read_text())
]


@pytest.mark.parametrize("vector", VECTORS)
def test_a_vector_ends_as_it_says(vector: dict[str, Any]) -> None:
    said = {key: vector[key] for key in vector.keys() - {"name", "operation", "inputs"}}
    assert outcome(vector["operation"], vector["inputs"]) == said


@pytest.mark.parametrize("file", FILES)
def test_a_vector_file_is_what_the_generator_writes(file: str) -> None:
    assert (FOLDER / f"{file}.json").read_text() == contents(file)


def test_every_file_of_vectors_has_a_generator() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(FILES)


def test_every_operation_has_a_vector() -> None:
    assert {vector.values[0]["operation"] for vector in VECTORS} == set(OPERATIONS)


def test_every_operation_that_reads_from_a_peer_has_a_vector_that_fails() -> None:
    failing = {
        vector.values[0]["operation"] for vector in VECTORS if not vector.values[0]["success"]
    }
    assert failing == {
        *("decode_json", "decode_set", "decode_roster", "accept_envelope", "unpack_envelopes"),
        *("accept_document", "accept_spec", "pin_manifest", "follow_manifest", "read_certificate"),
        *(
            "accept_query",
            "accept_charges",
        ),
        "read_receipt_query",
    }
