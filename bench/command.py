"""How benchmarks read their options and keep their figures."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def options(
    text: str | None, arguments: Sequence[str] | None = None, **defaults: Any
) -> argparse.Namespace:
    """Return the options of a command that `text` describes, by the names of their `defaults`.

    A default tells the type. False is that of a flag, a list takes one value or more, and a type
    stands for no value of it.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        option = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, list):
            parser.add_argument(option, nargs="+", type=type(default[0]), default=default)
        elif isinstance(default, type):
            parser.add_argument(option, type=default)
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser.parse_args(arguments)


def write(figures: Any, path: Path | None) -> None:
    """Write figures as JSON where they are asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n")


def show(figures: Mapping[str, Any], indent: str = "") -> None:
    """Print figures, each on a line with what it is of."""
    for what, figure in figures.items():
        if isinstance(figure, Mapping):
            print(f"{indent}{what}" + ("" if figure else ": none"))
            show(figure, indent + "  ")
        elif isinstance(figure, float):
            print(f"{indent}{what:46} {figure:12,.3f}")
        else:
            print(f"{indent}{what:46} {figure:>12}")
