"""Makes a command's options from a model's fields, so that each is described once."""

import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import pydantic
import typer

from shoal_protocol.queries import QueryName
from shoal_protocol.trust.policy import Policy, all_but_one

VALID_DAYS: Final = 1826  # five years

ExtraHosts = Annotated[
    list[str] | None,
    typer.Option("--san", help="Further host name or IP address for certificates; repeatable."),
]
ValidDays = Annotated[
    int, typer.Option(min=1, max=36525, help="Days that the certificate is valid.")
]

Command = Callable[..., None]


def with_options_of(
    model: type[pydantic.BaseModel],
    *,
    into: str,
    without: Collection[str] = (),
    flags: Mapping[str, tuple[str, ...]] | None = None,
    environment: str | None = None,
    **defaults: Any,
) -> Callable[[Command], Command]:
    """Return a decorator: the fields of `model` become options, and their values one argument.

    The command is called with the dictionary of the values as its argument `into`; what is None
    is left out. `flags` names options other than by their field, `defaults` replaces the model's,
    and with `environment` the variable of that prefix and the field's name is read, too.
    """
    named = [each for each in model.model_fields.items() if each[0] not in without]
    fields = dict(sorted(named, key=lambda each: not each[1].is_required()))  # required ones first

    def option(name: str) -> inspect.Parameter:
        field = fields[name]
        declared = typer.Option(
            *(flags or {}).get(name, (f"--{name.replace('_', '-')}",)),
            help=_sentence(field.description),
            envvar=None if environment is None else f"{environment}{name.upper()}",
        )
        default = defaults.get(name, inspect.Parameter.empty)
        if name not in defaults and not field.is_required():
            default = field.default
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[_on_a_command_line(field.annotation), declared],
        )

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.name != into]
        whole = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        whole[-1:-1] = map(option, fields)  # --json stays the last one

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in fields}
            chosen = {name: each for name, each in values.items() if each is not None}
            command(**given, **{into: chosen})

        run.__signature__ = signature.replace(parameters=whole)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in whole}
        return run

    return decorate


def _on_a_command_line(annotation: Any) -> Any:
    """Return the type that an option of a field's type is read as; the model checks the rest."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _on_a_command_line(inner[0])
    if origin in (Union, types.UnionType):
        return _on_a_command_line(next(each for each in inner if each is not type(None))) | None
    if origin is tuple:
        return list[str] | None
    return str if origin is Literal else annotation


def _sentence(description: str | None) -> str | None:
    return description and f"{description[0].upper()}{description[1:]}."


_FLAGS: Final = {
    "mechanisms": ("--mechanism",),
    "minimum_threshold": ("--minimum-threshold", "--threshold"),
}


def policy_options(**defaults: Any) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a policy, as its argument `rules`."""
    standing = {"mechanisms": None, "maximum_round_seconds": 86_400}
    return with_options_of(
        Policy, into="rules", without=("queries",), flags=_FLAGS, **standing | defaults
    )


def policy_of(rules: dict[str, Any], *, nodes: int) -> Policy:
    """Return the policy, with every query of this version and the noise that fits its delta.

    Where `rules` say nothing else, all but one of so many Compute `nodes` must sign a version.

    Raises:
        pydantic.ValidationError: a value is out of range.
    """
    fitting = ["discrete_gaussian" if rules["delta"] else "discrete_laplace"]
    rules = rules | {"manifest_signatures": rules.get("manifest_signatures") or all_but_one(nodes)}
    return Policy.model_validate({"mechanisms": fitting, "queries": get_args(QueryName)} | rules)
