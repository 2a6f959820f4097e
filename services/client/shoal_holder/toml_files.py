"""Reads TOML files that people write; errors name path and field."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from shoal_protocol.wire.documents import describe

Content = TypeVar("Content")


def read_toml(path: Path, parse: Callable[[dict[str, Any]], Content]) -> Content:
    """Return what `parse` makes of a file; it raises `ValueError` if it cannot.

    Raises:
        ValueError: the file is not TOML, or something in it is missing, unknown or out of range.
        OSError: it cannot be read.
    """
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    except pydantic.ValidationError as error:
        raise ValueError(f"{path}: {describe(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
