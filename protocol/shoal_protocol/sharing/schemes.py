"""The sharing schemes that a round can have; a spec holds one, and that object does the work."""

from typing import Annotated, Final

from pydantic import Field

from shoal_protocol.sharing.additive import AdditiveSharing
from shoal_protocol.sharing.threshold import ThresholdSharing

Sharing = Annotated[AdditiveSharing | ThresholdSharing, Field(discriminator="scheme")]

ADDITIVE: Final = AdditiveSharing()


def sharing_of(threshold: int | None, committee: int | None) -> Sharing:
    """Return the scheme with this threshold and committee; None is all of the nodes.

    Raises:
        ValueError: one is out of range.
    """
    if threshold is None:
        return AdditiveSharing(committee=committee)
    return ThresholdSharing(threshold=threshold, committee=committee)
