"""The verdict on a regression: whether its intervals may be believed, and why they may not."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

VerdictKind = Literal["trustworthy", "doubtful", "prior"]


class Verdict(BaseModel):
    """`kind` is what to make of intervals, and `reasons` say why.

    - "trustworthy": nothing that was measured speaks against them.
    - "prior": they hold what is true, above all because the prior does: the data tell little.
    - "doubtful": something was measured under which intervals were seen to fail.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: VerdictKind
    reasons: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = ()

    def __str__(self) -> str:
        """Return the verdict on one line."""
        return ": ".join([self.kind, *(["; ".join(self.reasons)] if self.reasons else [])])
