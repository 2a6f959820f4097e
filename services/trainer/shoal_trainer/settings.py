"""The settings that only a trainer has."""

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from shoal_hosting.service import ServiceSettings

DRAWS_AT_ONCE: Final = 16
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
    conducted_at: str | None = Field(
        default=None,
        pattern=r"^https://[^\s/?#@\\]+$",
        description=(
            "where a process with SHOAL_SERVES=crowds hands all other requests to: the URL, "
            "https://host:port, of the one that conducts rounds; or nothing, to refuse them"
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

    @model_validator(mode="after")
    def _only_others_are_told(self) -> Self:
        if self.serves == "everything" and self.conducted_at is not None:
            raise ValueError("only a process with SHOAL_SERVES=crowds has SHOAL_CONDUCTED_AT")
        return self
