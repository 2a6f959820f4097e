"""What the images weigh without their base."""

import pytest

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
