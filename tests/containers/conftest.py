"""What the tests in containers share: images of this tree, built once in a session."""

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.containers.compose import ROOT, docker, run

IMAGES = ("shoal-compute", "shoal-aggregator", "shoal-trainer", "shoal-client", "shoal-analyst")


@pytest.fixture(scope="session")
def tag() -> Iterator[str]:
    """Build the images, and return their tag, which is no other session's."""
    tag = f"test-{uuid.uuid4().hex[:8]}"
    services = ("compute-0", "aggregator", "trainer", "hospital-a", "keys")
    command = ["docker", "compose", "--project-directory", str(ROOT), "build", "--quiet"]
    try:
        run([*command, *services], os.environ | {"SHOAL_TAG": tag})
        yield tag
    finally:
        for image in IMAGES:
            docker("image", "rm", "--force", f"{image}:{tag}")
