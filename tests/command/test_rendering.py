"""What the renderer makes of any document: every field, in words, and nothing that steers."""

import io
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import pydantic
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from shoal_command.options import with_options_of
from shoal_command.rendering import rendered
from tests.world.examples import CONSORTIUM, SPEC


class Phase(StrEnum):
    OPEN = "open"


def shown(value: Any, width: int = 200) -> str:
    """Return what the renderer prints, without the lines of tables."""
    file = io.StringIO()
    Console(width=width, file=file).print(rendered(value))
    return " ".join(file.getvalue().replace("│", " ").split())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"maximum_round_seconds": 86_400}, "Maximum round 86,400 s"),
        ({"sent_bytes": 1024}, "Sent 1,024 bytes"),
        ({"seconds": 2}, "Seconds 2 s"),
        ({"epsilon": 0.123456}, "Epsilon 0.1235"),
        ({"epsilon": math.inf}, "Epsilon infinite"),
        ({"threshold": None, "round_seconds": None}, "Threshold none Round none"),
        ({"accepted": True, "lost": False}, "Accepted yes Lost no"),
        ({"phase": Phase.OPEN}, "Phase open"),
        ({"at": datetime(2026, 5, 1, 12, tzinfo=UTC)}, "At 2026-05-01 12:00:00 UTC"),
        ({"queries": ("counts", "sums")}, "Queries counts, sums"),
        ({"queries": ()}, "Queries none"),
        ({"clients": {"enrolled": 4, "revoked": 0}}, "Clients Enrolled 4 Revoked 0"),
        ({"absent": {}}, ""),
    ],
)
def test_a_field_is_shown_by_its_name_with_its_unit(
    value: Mapping[str, Any], expected: str
) -> None:
    assert shown(value) == expected


@pytest.mark.parametrize("document", [SPEC, CONSORTIUM.manifest], ids=["spec", "manifest"])
def test_every_field_of_a_signed_document_is_shown(document: pydantic.BaseModel) -> None:
    said = shown(document, width=10_000)
    for name in type(document).model_fields:
        assert name.replace("_", " ").capitalize().removesuffix(" seconds") in said


def test_nothing_in_a_document_is_a_command_to_the_terminal() -> None:
    hostile = "[bold]a[/bold] \x1b[2J\x07 b"
    said = shown({"reason": hostile, "rows": [{"\x1b[31mname": hostile}]})
    assert "\x1b" not in said and "\x07" not in said
    assert said.count("[bold]a[/bold]") == 2


class Sizes(pydantic.BaseModel):
    """What the options of a made-up command are made of."""

    clients: int = pydantic.Field(description="how many")
    levels: tuple[str, ...] = ()
    share: Annotated[float, pydantic.Field(gt=0)] | None = None


def test_options_are_a_models_fields_with_their_descriptions_and_defaults() -> None:
    found: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command()
    @with_options_of(Sizes, into="sizes", flags={"levels": ("--level",)}, environment="MADE_UP_")
    def measure(sizes: dict[str, Any], as_json: bool = False) -> None:
        found.append(sizes)

    run = CliRunner().invoke
    assert "How many." in run(app, ["--help"]).output
    assert run(app, []).exit_code == 2
    assert run(app, ["--clients", "3", "--level", "a", "--level", "b"]).exit_code == 0
    assert run(app, ["--share", ".5"], env={"MADE_UP_CLIENTS": "4"}).exit_code == 0
    assert [Sizes.model_validate(each) for each in found] == [
        Sizes(clients=3, levels=("a", "b")),
        Sizes(clients=4, share=0.5),
    ]
