"""The round spec: what the trainer asks, of whom, with how much noise, by when.

`spec_checks` decides which specs are acceptable.
"""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cost, price
from shoal_protocol.privacy.fineness import effective_noise_clients
from shoal_protocol.privacy.mechanisms import Noise, NoisePart
from shoal_protocol.queries import NoiseDesign, Query
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.wire.documents import BoundDocument, Role
from shoal_protocol.wire.encoding import Base64, Digest, Name, Timestamp, decode_clients
from shoal_protocol.wire.numbers import Clients, Count, Loss, Place

LARGEST_DIMENSION: Final = 1_000_000


class RoundSpec(BoundDocument):
    """Trainer -> everyone. Its digest is the round's id, so another spec is another round."""

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["round_spec"] = "round_spec"
    job: Digest
    number: Count  # counts the job's rounds from 0
    query: Query
    dimension: int = Field(ge=1, le=LARGEST_DIMENSION)
    modulus_bits: Literal[61, 64]  # as `sharing` has it
    sharing: Sharing
    noise: Noise
    population: Base64  # canonical Roaring bitmap of client indices
    population_size: Annotated[Clients, Field(ge=2)]
    dropouts: Clients
    colluders: Clients
    minimum_cohort: Annotated[Clients, Field(ge=2)]
    smallest_answer: Place  # fewest slots that the round asks of a data holder
    compute_nodes: tuple[Name, ...] = Field(min_length=2, max_length=255)
    opened_at: Timestamp
    deadline: Timestamp
    proceed_at: Timestamp  # from here on `threshold` nodes suffice, and the others are not awaited
    give_up_at: Timestamp
    mu: Loss  # the round's cost for each client of the population,
    epsilon: Loss | None  # and as pure epsilon

    def clients(self) -> BitMap:
        """Return the population.

        Raises:
            MalformedDocument: it is not a canonical bitmap.
        """
        return decode_clients(self.population)

    @property
    def threshold(self) -> int:
        """Return how many Compute nodes' partial sums give the round's total, at least."""
        return self.sharing.needed(len(self.compute_nodes))

    @property
    def opening(self) -> int:
        """Return how many Compute nodes' shares open a data holder's answer."""
        return self.sharing.opening(len(self.compute_nodes))

    @property
    def cost(self) -> Cost:
        """Return what the spec states that the round costs each client of its population."""
        return Cost.stated(self.mu, self.epsilon)

    @property
    def computed_cost(self) -> Cost:
        """Return what the round costs each client by its query and its noise.

        Raises:
            ValueError: nobody would add noise.
        """
        return price(
            self.noise,
            sensitivity=self.design.sensitivity,
            population=self.population_size,
            dropouts=self.dropouts,
            colluders=self.colluders,
        )

    @property
    def design(self) -> NoiseDesign:
        """Return how the noise is spread, and the sensitivity against it."""
        return self.query.design(self.noise.mechanism)

    @property
    def parties(self) -> int:
        """Return N - D - C - 1, how many clients' noise counts.

        Raises:
            ValueError: nobody's would.
        """
        return effective_noise_clients(
            population=self.population_size, dropouts=self.dropouts, colluders=self.colluders
        )

    def noise_blocks(self) -> list[tuple[int, NoisePart]]:
        """Return (coordinates, one client's noise on each) of every block, in order."""
        return [
            (block.coordinates, self.noise.part(block.relative_scale, parties=self.parties))
            for block in self.design.blocks
        ]
