"""Puts packages that stand beside this folder into the wheel; an editable install names paths."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackagesBeside(BuildHookInterface[Any]):
    """Adds each folder of the option `beside`, under its own name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Tell the builder which folders to add, and under which names."""
        if version == "standard":
            build_data["force_include"] |= {each: Path(each).name for each in self.config["beside"]}
