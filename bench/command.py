"""How benchmarks read their options, run, and keep and show their figures."""

import argparse
import asyncio
import inspect
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def options(text: str | None, **defaults: Any) -> argparse.Namespace:
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
    return parser.parse_args()


def measured(text: str | None, measure: Callable[..., Any], **defaults: Any) -> Any:
    """Run a benchmark in a new directory; print its figures, and write them to the file --json.

    `measure` takes the directory, and the options by the names of their `defaults`; it returns
    figures, or is a coroutine function that does.
    """
    asked = vars(options(text, json=Path, **defaults))
    path = asked.pop("json")
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), **asked)
        if inspect.iscoroutine(figures):
            figures = asyncio.run(figures)
    write(figures, path)
    show(figures)
    return figures


def write(figures: Any, path: Path | None) -> None:
    """Write figures as JSON if there is a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n")


def show(figures: Mapping[str, Any], indent: str = "") -> None:
    """Print figures, each on a line with its name."""
    for what, figure in figures.items():
        if isinstance(figure, Mapping):
            print(f"{indent}{what}" + ("" if figure else ": none"))
            show(figure, indent + "  ")
        elif isinstance(figure, float):
            print(f"{indent}{what:46} {figure:12,.3f}")
        else:
            print(f"{indent}{what:46} {figure!s:>12}")
