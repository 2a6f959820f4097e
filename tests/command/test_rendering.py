"""What the renderer makes of any document: every field, in words, and nothing that steers."""

import io
from typing import Any

import pydantic
import pytest
from rich.console import Console

from shoal_command.rendering import rendered
from tests.world.examples import CONSORTIUM, SPEC


def shown(value: Any, width: int = 200) -> str:
    """Return what the renderer prints, without the lines of tables."""
    file = io.StringIO()
    Console(width=width, file=file).print(rendered(value))
    return " ".join(file.getvalue().replace("│", " ").split())


@pytest.mark.parametrize("document", [SPEC, CONSORTIUM.manifest], ids=["spec", "manifest"])
def test_every_field_of_a_signed_document_is_shown(document: pydantic.BaseModel) -> None:
    said = shown(document, width=10_000)
    for name in document.model_dump(mode="json"):
        assert name.replace("_", " ").capitalize().removesuffix(" seconds") in said


def test_nothing_in_a_document_is_a_command_to_the_terminal() -> None:
    hostile = "[bold]a[/bold] \x1b[2J\x07 b"
    said = shown({"reason": hostile, "rows": [{"\x1b[31mname": hostile}]})
    assert "\x1b" not in said and "\x07" not in said
    assert said.count("[bold]a[/bold]") == 2
