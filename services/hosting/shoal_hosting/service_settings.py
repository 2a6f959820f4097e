"""The settings of every service."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from shoal_hosting.storage.database_schema import FORM, is_postgresql_url


class ServiceSettings(BaseModel):
    """Settings of every service, read once from `SHOAL_PARTY`, `SHOAL_CONSORTIUM` and so on."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    party: Path = Field(description="the directory with this party's keys, card and pin")
    consortium: Path = Field(description="the directory with the consortium's manifest and roster")
    data: Path = Field(description="a directory on durable storage, for this service alone")
    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(ge=0, le=65_535, description="the port to listen on")
    database_url: str | None = Field(
        default=None, description=f"a PostgreSQL URL, {FORM}, or nothing for an SQLite file"
    )
    accept_loss: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{16}$",
        description=(
            "nothing, or the token that a refusal to start over a database that is lost or older "
            "shows: the loss is accepted, that very one"
        ),
    )
    metrics_for_anybody: bool = Field(
        default=False,
        description="whether /metrics answers who does not show the token in operator.token",
    )
    console: bool = Field(
        default=False,
        description=(
            "whether /console shows how the service stands to who signs in by the token in "
            "operator.token; strangers who reach the port see the sign-in"
        ),
    )
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description="debug, info, warning or error",
    )

    @field_validator("database_url")
    @classmethod
    def _can_be_opened(cls, url: str | None) -> str | None:
        if url is not None and not is_postgresql_url(url):
            raise ValueError("not a PostgreSQL URL")
        return url
