"""The settings of the agent's process, and of the vault that it starts."""

from pydantic import Field

from shoal_holder.settings import Settings as VaultSettings
from shoal_kit.settings import ListeningSettings


class Settings(VaultSettings, ListeningSettings):
    """The agent's settings, read once from `SHOAL_PARTY`, `SHOAL_AGENT_KEY` and so on."""

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
