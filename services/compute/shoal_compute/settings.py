"""The settings that only a Compute node has."""

import re
from typing import Final

from pydantic import Field, field_validator

from shoal_kit.peers.exchange import OWN_MACHINE
from shoal_service.running import ServiceSettings
from shoal_service.standing import BOX_KEY_LIFETIME

_SCHEDULER: Final = re.compile(
    r"(tcp|tls)://(?:\[([0-9A-Fa-f:]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII
)


class ComputeSettings(ServiceSettings):
    """Settings of every service, where shares are added up and the age of box keys."""

    summing: str | None = Field(
        default=None,
        description=(
            "nothing, or the address of a Dask scheduler that adds up shares, tls://host:port; use "
            "tls://, for over tcp:// shares are readable on the wire: that is for this machine"
        ),
    )

    box_key_days: int = Field(
        default=BOX_KEY_LIFETIME.days,
        ge=1,
        le=3_650,
        description="after how many days the operator is asked for a new box key",
    )

    @field_validator("summing")
    @classmethod
    def _keeps_shares_from_the_wire(cls, where: str | None) -> str | None:
        if where is None:
            return None
        address = _SCHEDULER.fullmatch(where)
        if address is None:
            raise ValueError("no address")
        if address[1] == "tcp" and (address[2] or address[3]).lower() not in OWN_MACHINE:
            raise ValueError("shares would go out in clear")
        return where
