"""The settings that only a trainer has."""

from typing import Literal

from pydantic import Field

from shoal_hosting.service import ServiceSettings

Serves = Literal["everything", "crowds"]


class TrainerSettings(ServiceSettings):
    """Those of every service, and what this process does for the trainer."""

    serves: Serves = Field(
        default="everything",
        description=(
            "everything, or crowds: crowd jobs only, for any number of processes beside the one "
            "that conducts rounds, over the same PostgreSQL database"
        ),
    )
