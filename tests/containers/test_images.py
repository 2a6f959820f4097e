"""What the images weigh without their base, and that nothing which they need was left out."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.containers.compose import docker, engine_answers

BASE = "python:3.12-slim"
MOST_MEGABYTES = {
    "shoal-compute": 200,
    "shoal-aggregator": 200,
    "shoal-trainer": 200,
    "shoal-client": 220,
    "shoal-analyst": 220,
}

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not engine_answers(), reason="no Docker engine with Compose answers"),
]


def size(image: str) -> int:
    return int(docker("image", "inspect", "--format", "{{.Size}}", image))


@pytest.mark.parametrize("image", MOST_MEGABYTES)
def test_an_image_adds_little_to_its_base(tag: str, image: str) -> None:
    assert (size(f"{image}:{tag}") - size(BASE)) / 1e6 <= MOST_MEGABYTES[image]


def test_an_agents_image_reads_parquet_files(tag: str, tmp_path: Path) -> None:
    """Most of PyArrow is left out there."""
    tmp_path.chmod(0o755)
    table = pa.table({"id": ["x", "y"], "age": [40, None], "weight": [70.5, 81.0]})
    for compression in ("snappy", "gzip", "zstd", "lz4", "brotli"):
        parquet.write_table(table, tmp_path / f"{compression}.parquet", compression=compression)
    script = (
        "import json, pathlib, shoal_holder.record_files as r; print(json.dumps({p.stem: "
        "r.read_records(p).values.tolist() for p in pathlib.Path('/files').iterdir()}))"
    )
    mounted = f"{tmp_path}:/files:ro"
    answer = docker(
        "run", "--rm", "--volume", mounted, f"shoal-client:{tag}", "python", "-c", script
    )
    found = json.loads(answer)
    assert len(found) == 5
    for values in found.values():
        assert values[0] == [40.0, 70.5]
        assert values[1][1] == 81.0
