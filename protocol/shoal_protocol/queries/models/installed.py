"""A NumPyro model, identified by name and digest; its code is never sent.

Both sides have the model installed, as an entry point of the group "shoal.models". Its sources are
compared with the digest before they are imported (`shoal_hosting.installed_models`).
"""

from typing import Annotated, Literal

from pydantic import Field

from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Digest

LARGEST_LATENT_DIMENSION = 10_000


class InstalledModel(Model):
    """An entry point, the SHA-256 of the sources that hold it, and how many latents it has.

    `unconstrained` is d, the length of the vector of all latents in unconstrained space. With
    `normalised` the model is handed columns that are taken to [-1, 1] by their bounds, else in
    the data's units, cut to their bounds.
    """

    name: Literal["numpyro"] = "numpyro"
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    digest: Digest
    unconstrained: Annotated[int, Field(ge=1, le=LARGEST_LATENT_DIMENSION, strict=True)]
    normalised: bool

    def dimension(self, columns: int) -> int:
        """Return d, whatever the number of columns."""
        return self.unconstrained

    @property
    def reference(self) -> str:
        """Return name@digest, as a data holder's policy lists it."""
        return f"{self.entry_point}@{self.digest}"
