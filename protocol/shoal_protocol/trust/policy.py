"""The consortium's policy, which its manifest states and every job must keep to.

Also the checks of time limits and their messages. `now` is always the clock of whoever checks, so
that the author of a request cannot gain time.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal, Self

import pydantic
from pydantic import Field

from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries import Mechanism, QueryName
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import LARGEST_COMMITTEE
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import LARGEST_CLIENTS

LARGEST_POPULATION: Final = 2**20
"""Most clients that a round, and a job in rounds, can have."""

LONGEST_SECONDS: Final = 10 * 365 * 86_400
"""Largest value of either limit."""

CLOCKS_APART: Final = timedelta(minutes=5)
"""How far two parties' clocks may differ. Without this tolerance one party could accept a request
that is exactly at a limit, and another refuse it."""

_WHOSE_CLOCK: Final = "if that was not meant, the sender's clock or the one here is wrong"


def too_far_message(name: str, moment: datetime, now: datetime, limit: str) -> str:
    """Say that `moment` is further after `now` than `limit` allows, and by how much."""
    return f"{name} is {duration(now, moment)} ahead, more than {limit}: {_WHOSE_CLOCK}"


def passed_message(name: str, moment: datetime, now: datetime) -> str:
    """Say that `moment` lies before `now`, and by how much."""
    return f"{name} has passed, {duration(moment, now)} ago: {_WHOSE_CLOCK}"


def duration(earlier: datetime, later: datetime) -> str:
    """Return the time between two moments as text, in days, hours, minutes and seconds."""
    return f"{timedelta(seconds=round((later - earlier).total_seconds()))} (h:mm:ss)"


def all_but_one(nodes: int) -> int:
    """Return the default of `manifest_signatures` for so many Compute nodes.

    It is all but one, and two at least.
    """
    return max(2, nodes - 1)


class TimeLimits(Model):
    """How far ahead a job may reach, by the consortium's policy or by a data holder's."""

    maximum_join_seconds: int = Field(
        default=14 * 86_400,  # people must be able to approve a job
        ge=1,
        le=LONGEST_SECONDS,
        description="longest that clients may have to join a job, from when they hear of it",
    )
    maximum_job_seconds: int = Field(
        default=90 * 86_400,
        ge=1,
        le=LONGEST_SECONDS,
        description="longest that a job, or a crowd job, may take in all",
    )

    def too_far(
        self,
        setting: Literal["maximum_join_seconds", "maximum_job_seconds"],
        name: str,
        moment: datetime,
        now: datetime,
    ) -> str | None:
        """Return why a moment is further after `now` than a setting allows, or None.

        It allows for clocks that differ.
        """
        seconds = getattr(self, setting)
        if moment - now <= timedelta(seconds=seconds) + CLOCKS_APART:
            return None
        return too_far_message(name, moment, now, f"the policy's {setting}, {seconds}")


class Policy(TimeLimits):
    """The consortium's policy. The caps hold for each client, over all jobs together.

    Jobs compose as `privacy.accounting` says; delta = 0 allows pure epsilon only, and so
    the discrete Laplace only.
    """

    minimum_cohort: int = Field(
        ge=2, le=LARGEST_CLIENTS, description="smallest cohort that may be summed"
    )
    minimum_colluders: int = Field(
        ge=0,
        le=LARGEST_CLIENTS,
        description="how many clients of a cohort must at least be able to collude, in every job, "
        "without the price rising",
    )
    colluding_holders: int = Field(
        ge=0,
        le=LARGEST_CLIENTS,
        description="how many data holders, the largest of every round, must be able to collude "
        "with all of their slots without the price rising",
    )
    minimum_holders: int = Field(
        ge=1, le=LARGEST_CLIENTS, description="fewest data holders that a round may ask, or sum"
    )
    maximum_epsilon: float = Field(
        gt=0, le=100, description="largest epsilon of one client over all jobs together, up to 100"
    )
    delta: float = Field(
        ge=0, lt=1, description="the delta that belongs to it; 0 allows pure epsilon only"
    )
    mechanisms: tuple[Mechanism, ...] = Field(
        min_length=1,
        description="noise that jobs may use: discrete_gaussian, or discrete_laplace for pure "
        "epsilon; the one that fits delta if none is named",
    )
    queries: tuple[QueryName, ...] = Field(min_length=1)
    maximum_round_seconds: int = Field(
        ge=1, le=30 * 86_400, description="longest that a round may last"
    )
    minimum_threshold: int | None = Field(
        default=None,
        ge=2,
        le=255,
        description="allow jobs in which so many Compute nodes or more, and more than half, open a "
        "sum without the others; without it all are needed",
    )
    minimum_committee: int | None = Field(
        default=None,
        ge=2,
        le=LARGEST_COMMITTEE,
        exclude_if=lambda value: value is None,
        description="allow jobs in which each data holder shares with so many Compute nodes or "
        "more, of all; without it with all",
    )
    manifest_signatures: int | None = Field(
        default=None,
        ge=2,
        le=255,
        exclude_if=lambda value: value is None,
        description="how many Compute nodes, more than half, must sign the next version of the "
        "manifest before anybody believes it; all but one, and 2 at least, in new consortia",
    )
    maximum_local_epsilon: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="allow crowd jobs (Draw and Discard), each of which may cost one client so "
        "much local, pure epsilon; without it there are none",
    )
    retention_days: int | None = Field(
        default=None,
        ge=30,
        le=36_500,
        exclude_if=lambda value: value is None,
        description="how long services keep a job's documents from its end on; without it for ever",
    )

    @pydantic.model_validator(mode="after")
    def _pure_cap_has_pure_noise(self) -> Self:
        if self.delta == 0.0 and set(self.mechanisms) != {"discrete_laplace"}:
            raise ValueError("with delta 0 the only mechanism is discrete_laplace")
        return self

    @property
    def cap(self) -> Cap:
        """Return what all jobs together may cost one client."""
        return Cap(epsilon=self.maximum_epsilon, delta=self.delta)

    def refusal(
        self,
        *,
        sharing: Sharing,
        nodes: int,
        colluders: int,
        mechanism: Mechanism,
        queries: Iterable[QueryName],
    ) -> str | None:
        """Return why no job and no round may be like this among so many nodes, or None."""
        if reason := sharing.refusal(
            nodes=nodes,
            minimum_threshold=self.minimum_threshold,
            minimum_committee=self.minimum_committee,
        ):
            return reason
        if colluders < self.minimum_colluders:
            return f"colluders must be at least {self.minimum_colluders}"
        if mechanism not in self.mechanisms:
            needed = "a delta of 0" if mechanism == "discrete_gaussian" else "a delta above 0"
            return (
                f"the consortium's manifest does not allow the mechanism: it demands {needed} (its "
                "authority chose by --mechanism of `shoal consortium create`)"
            )
        for query in queries:
            if query not in self.queries:
                return f"the policy does not allow the query {query}"
        return None
