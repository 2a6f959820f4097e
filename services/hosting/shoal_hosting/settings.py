"""A service's settings, read once from the environment."""

from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from shoal_hosting.startup import StartupRefused

Settings = TypeVar("Settings", bound=BaseModel)

# compose files pick images by it, and services started by hand may inherit it
_OTHERS: Final = frozenset({"SHOAL_TAG", "SHOAL_HTTPS_PROXY"})  # compose's, and of `peers`

# the validator's own message may quote the value, or is a regular expression
_OURS_TO_WORD: Final = {"missing", "value_error", "assertion_error", "string_pattern_mismatch"}


def read_settings(model: type[Settings], prefix: str, environ: Mapping[str, str]) -> Settings:
    """Return the settings that the variables `<prefix><FIELD>` of `environ` spell out.

    An empty variable counts as unset, since that is how compose files pass on what is not there.
    A variable with the prefix that no field has is refused: it is a setting that someone
    believes to be in force. `SHOAL_TAG`, which the compose files read, and
    `SHOAL_HTTPS_PROXY`, which `peers` reads, are let pass.

    Raises:
        StartupRefused: names each variable that is missing, unknown or wrong, and its value never.
        ValueError: `model` is not frozen, or `prefix` does not end in an underscore.
    """
    if not model.model_config.get("frozen"):
        raise ValueError(f"{model.__name__} must be frozen: settings are read once")
    if not prefix.endswith("_"):
        raise ValueError("a prefix ends in an underscore, so that it ends a word")
    variables = {f"{prefix}{field.upper()}": field for field in model.model_fields}
    given = {name: value for name, value in environ.items() if name.startswith(prefix)}
    unknown = given.keys() - variables - _OTHERS
    complaints = [f"{name} is not a setting of this service" for name in unknown]
    try:
        settings = model.model_validate_strings(
            {variables[name]: value for name, value in given.items() if name in variables and value}
        )
    except ValidationError as error:
        complaints += [
            _complaint(model, prefix, str(item["loc"][0]) if item["loc"] else "", item["type"])
            if item["type"] in _OURS_TO_WORD
            else f"{prefix}{str(item['loc'][0]).upper()}: {item['msg']}"
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise StartupRefused("; ".join(sorted(complaints))) from None
    if complaints:
        raise StartupRefused("; ".join(sorted(complaints)))
    return settings


def _complaint(model: type[BaseModel], prefix: str, field: str, kind: str) -> str:
    """Word a complaint without the validator's own message."""
    if not field:
        return f"the variables {prefix}... contradict each other"
    description = model.model_fields[field].description
    wanted = f": {description}" if description else ""
    return f"{prefix}{field.upper()} {'must be set' if kind == 'missing' else 'is wrong'}{wanted}"
