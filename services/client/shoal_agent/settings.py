"""The settings of the agent's process, and of the vault that it starts."""

from pathlib import Path

from pydantic import Field

from shoal_holder.settings import Settings as VaultSettings


class Settings(VaultSettings):
    """The agent's settings, read once from `SHOAL_PARTY`, `SHOAL_AGENT_KEY` and so on."""

    party: Path = Field(description="the directory with tls.crt, tls.key and pin")
    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(ge=0, le=65_535, description="the port to listen on")
    vault_pipes: Path | None = Field(
        default=None,
        description=(
            "the directory of named pipes to a vault in a container of its own, which has the "
            "SHOAL_AGENT_... below; without it, the agent starts its vault"
        ),
    )
    agent_poll_seconds: float = Field(
        default=1.0, gt=0.0, le=3600.0, description="how often to ask the trainer for news"
    )
    metrics_for_anybody: bool = Field(
        default=False,
        description=(
            "whether /metrics answers who does not show the token in owner.token; what is left of "
            "the cap is then shown only if policy.toml has declare and declare_cap"
        ),
    )
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description="debug, info, warning or error",
    )
