"""The settings of the vault's process; the agent's, which starts one, has them too."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from shoal_holder.site_files import HOLDER_KEY, POLICY, records_in
from shoal_kit.settings import PartySettings


class Settings(PartySettings):
    """The vault's settings, read once from `SHOAL_PARTY`, `SHOAL_AGENT_KEY` and so on."""

    agent_key: Path | None = Field(
        default=None,
        description="the data holder's private key; without it, holder.key in SHOAL_PARTY",
    )
    agent_records: Path | None = Field(
        default=None,
        description=(
            "the clients' records, a .csv or loaded .npz file; without it, records.csv "
            "in SHOAL_PARTY, or records.npz where records.toml is"
        ),
    )
    agent_id_column: str | None = Field(
        default=None,
        description="the column that says whose record a row is; without it, id where there is one",
    )
    agent_policy: Path | None = Field(
        default=None,
        description="what the data holder allows; without it, policy.toml in SHOAL_PARTY",
    )
    agent_approval: Literal["automatic"] | None = Field(
        default=None,
        description=(
            "automatic: no owner is asked about a job, whatever the policy says; for trying out"
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
    vault_pipes: Path | None = Field(
        default=None,
        description=(
            "a directory of named pipes between a vault and an agent in containers of their own; "
            "without it, the agent starts its vault"
        ),
    )

    @property
    def key(self) -> Path:
        """Return the file with the private key."""
        return self.agent_key or self.party / HOLDER_KEY

    @property
    def records(self) -> Path:
        """Return the file with the records."""
        return self.agent_records or records_in(self.party)

    @property
    def policy(self) -> Path:
        """Return the file with the owner's rules."""
        return self.agent_policy or self.party / POLICY
