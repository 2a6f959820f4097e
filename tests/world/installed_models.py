"""Installs models for a test, as a package manager would: files, and metadata with entry points."""

import importlib
import tomllib
from pathlib import Path

import pytest

from shoal_kit import installed_models

EXAMPLES = Path(__file__).parents[2] / "examples/models"


def install(site: Path, distribution: str, files: dict[str, str], **models: str) -> None:
    """Write a distribution into `site`, a folder on the path, that offers `models`."""
    for name, content in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    metadata = site / f"{distribution}-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    )
    lines = [f"{name} = {value}\n" for name, value in models.items()]
    (metadata / "entry_points.txt").write_text("[shoal.models]\n" + "".join(lines))
    importlib.invalidate_caches()


def install_examples(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the examples' distribution on the path, with the entry points that it declares."""
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(installed_models, "_loaded", {})
    install(site, project["name"], {}, **project["entry-points"]["shoal.models"])
