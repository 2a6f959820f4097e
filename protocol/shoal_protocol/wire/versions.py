"""The release, and the one version of the protocol that it speaks.

`WIRE` is in every document, envelope, roster and domain prefix; documents of another are refused.
"""

from typing import Final

RELEASE: Final = "1.0"
WIRE: Final = 1
