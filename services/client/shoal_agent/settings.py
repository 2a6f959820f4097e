"""The settings of the agent's process, and of the vault that it starts."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """The agent's settings, read once from `SHOAL_PARTY`, `SHOAL_AGENT_KEY` and so on."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    party: Path = Field(description="the directory with tls.crt, tls.key and pin")
    consortium: Path = Field(description="the directory with the consortium's manifest and roster")
    pin: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        description="the digest of the trusted manifest; without it, the file pin in SHOAL_PARTY",
    )
    data: Path = Field(description="a directory on durable storage, for this agent alone")
    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(ge=0, le=65_535, description="the port to listen on")
    vault_pipes: Path | None = Field(
        default=None,
        description=(
            "the directory of named pipes to a vault in a container of its own, which has the "
            "SHOAL_AGENT_... below; without it, the agent starts its vault"
        ),
    )
    agent_key: Path | None = Field(
        default=None, description="the data holder's private key; or holder.key in SHOAL_PARTY"
    )
    agent_records: Path | None = Field(
        default=None,
        description=(
            "the clients' records, a .csv, .parquet or loaded .npz file; without it, records.csv "
            "in SHOAL_PARTY, or records.npz where records.toml is"
        ),
    )
    agent_id_column: str | None = Field(
        default=None,
        description="the column that says whose record a row is; without it, id where there is one",
    )
    agent_policy: Path | None = Field(
        default=None, description="what the data holder allows; or policy.toml in SHOAL_PARTY"
    )
    agent_approval: Literal["automatic"] | None = Field(
        default=None,
        description=(
            "automatic: no owner is asked about a job, whatever the policy says; for trying out"
        ),
    )
    agent_poll_seconds: float = Field(
        default=1.0, gt=0.0, le=3600.0, description="how often to ask the trainer for news"
    )
    agent_relay: bool = Field(
        default=False,
        description=(
            "send an answer in one message to one Compute node, which hands the others their "
            "envelopes; without it, to each node directly"
        ),
    )
    metrics_for_anybody: bool = Field(
        default=False,
        description="whether /metrics answers who does not show the token in owner.token",
    )
    accept_loss: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{16}$",
        description=(
            "nothing, or the token that a refusal to start over a state that is lost or older "
            "shows: the loss is accepted, that very one"
        ),
    )
    without_nodes: str | None = Field(
        default=None,
        pattern="^[a-z0-9][a-z0-9-]{0,62}(,[a-z0-9][a-z0-9-]{0,62})*$",
        description=(
            "nothing, or names of Compute nodes, with commas between, that are not asked what they "
            "charged the slots here: nodes that are gone, or not to be believed"
        ),
    )
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description="debug, info, warning or error",
    )
