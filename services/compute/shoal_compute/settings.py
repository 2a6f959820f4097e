"""The settings of a Compute node's process; it knows their names and reads nothing."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Read once, from the variables `SHOAL_PARTY`, `SHOAL_CONSORTIUM` and so on."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    party: Path = Field(description="the directory with this party's keys, card and pin")
    consortium: Path = Field(description="the directory with the consortium's manifest and roster")
    data: Path = Field(description="a directory on durable storage, for this service alone")
    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(ge=0, le=65_535, description="the port to listen on")
    database_url: str | None = Field(
        default=None, description="a PostgreSQL URL; without it, an SQLite file in the directory"
    )
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
