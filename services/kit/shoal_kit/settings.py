"""The settings of a party's process, read once from the environment."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shoal_kit.startup import StartupRefused

Settings = TypeVar("Settings", bound=BaseModel)

PREFIX: Final = "SHOAL_"
PROXY: Final = f"{PREFIX}HTTPS_PROXY"
"""The environment's variable with the URL of a forward proxy, http://[user:password@]host:port."""

_PROXY_PORT: Final = 3128
_PROXY_URL: Final = re.compile(
    r"http://([\w.~!$&'()*+,;=%-]+(:[\w.~!$&'()*+,;=:%-]*)?@)?"
    r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?/?",
    re.ASCII,
)

# compose files pick images by it, and services started by hand may inherit it
_OTHERS: Final = frozenset({"SHOAL_TAG", PROXY})  # compose's, and of `peers`

# the validator's own message may quote the value, or is a regular expression
_OURS_TO_WORD: Final = {"missing", "value_error", "assertion_error", "string_pattern_mismatch"}


class PartySettings(BaseModel):
    """What every process of a party is told that keeps a state."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    party: Path = Field(description="the directory with this party's keys, certificate and pin")
    consortium: Path = Field(description="the directory with the consortium's manifest and roster")
    data: Path = Field(description="a directory on durable storage, for this party alone")


class ListeningSettings(BaseModel):
    """What every process is told that serves others."""

    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(ge=0, le=65_535, description="the port to listen on")
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description="debug, info, warning or error",
    )


def proxy_in(environ: Mapping[str, str]) -> str | None:
    """Return the URL of the forward proxy that `SHOAL_HTTPS_PROXY` names, or None.

    Raises:
        ValueError: it is not the URL of an HTTP proxy. The message repeats no part of it, since
            it may hold a password.
    """
    url = environ.get(PROXY)
    if not url:
        return None
    match = _PROXY_URL.fullmatch(url)
    if match is None or not 0 < int(match["port"] or _PROXY_PORT) < 1 << 16:
        raise ValueError(
            f"{PROXY} is not http://[user:password@]host:port: only http:// leads to a proxy, and "
            "in user and password /, #, ?, @, spaces and the like are written as %2F, %23, %3F, %40"
        )
    return url if match["port"] else f"{url.rstrip('/')}:{_PROXY_PORT}"


def read_settings(model: type[Settings], environ: Mapping[str, str]) -> Settings:
    """Return the settings that the variables `SHOAL_<FIELD>` of `environ` spell out.

    An empty variable counts as unset, since that is how compose files pass on what is not there.
    A variable with the prefix that no field has is refused: it is a setting that someone
    believes to be in force. `SHOAL_TAG`, which the compose files read, and
    `SHOAL_HTTPS_PROXY`, which `peers` reads and which must be one it can use, are let pass.

    Raises:
        StartupRefused: names each variable that is missing, unknown or wrong, and its value never.
    """
    variables = {f"{PREFIX}{field.upper()}": field for field in model.model_fields}
    given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
    complaints = [
        f"{name} is not a setting of this service" for name in given.keys() - variables - _OTHERS
    ]
    try:
        proxy_in(given)
    except ValueError as error:
        complaints.append(str(error))
    try:
        settings = model.model_validate_strings(
            {variables[name]: value for name, value in given.items() if name in variables and value}
        )
    except ValidationError as error:
        complaints += [
            _complaint(model, str(item["loc"][0]), item["type"])
            if item["type"] in _OURS_TO_WORD
            else f"{PREFIX}{str(item['loc'][0]).upper()}: {item['msg']}"
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise StartupRefused("; ".join(sorted(complaints))) from None
    if complaints:
        raise StartupRefused("; ".join(sorted(complaints)))
    return settings


def _complaint(model: type[BaseModel], field: str, kind: str) -> str:
    """Word a complaint without the validator's own message."""
    description = model.model_fields[field].description
    wanted = f": {description}" if description else ""
    return f"{PREFIX}{field.upper()} {'must be set' if kind == 'missing' else 'is wrong'}{wanted}"
