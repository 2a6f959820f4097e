"""The sharing schemes that a round can have; a spec holds one, and that object does the work."""

from typing import Annotated, Final

from pydantic import Field

from shoal_protocol.sharing.additive import AdditiveSharing
from shoal_protocol.sharing.threshold import ThresholdSharing

Sharing = Annotated[AdditiveSharing | ThresholdSharing, Field(discriminator="scheme")]

ADDITIVE: Final = AdditiveSharing()
