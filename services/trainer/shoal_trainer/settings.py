"""The settings that only a trainer has."""

from typing import Final, Literal

from pydantic import Field

from shoal_hosting.running import ServiceSettings

DRAWS_AT_ONCE: Final = 16
Serves = Literal["everything", "crowds"]


class TrainerSettings(ServiceSettings):
    """Settings of every service, and this process's duties for the trainer."""

    serves: Serves = Field(
        default="everything",
        description=(
            "everything, or crowds: crowd jobs only, for any number of processes beside the one "
            "that conducts rounds, over the same PostgreSQL database; a balancer sends them the "
            "paths below /v1/crowds"
        ),
    )
    draws_at_once: int = Field(
        default=DRAWS_AT_ONCE,
        ge=1,
        le=1000,
        description=(
            "how many draws of crowd jobs are in work at a time: anybody may ask for them, and "
            "those beyond wait, so that submissions find room; refused after eight seconds"
        ),
    )
