"""Which Compute nodes get shares of a data holder's answer: all, or its committee of a few.

The nodes stand in a ring, in the manifest's order, and a data holder's committee begins at node
`holder mod nodes`: it is the same in all rounds, committees overlap, and the load is even.
Heikkilä et al. 2017, arXiv:1703.01106, section 5: clients that talk to a subset of the nodes.
"""

from typing import Final

from pydantic import Field

from shoal_protocol.wire.documents import Model

LARGEST_COMMITTEE: Final = 10


class Committees(Model):
    """What sharing schemes have in common; without `committee` each answer goes to all nodes."""

    committee: int | None = Field(
        default=None, ge=2, le=LARGEST_COMMITTEE, exclude_if=lambda value: value is None
    )

    def shares(self, nodes: int) -> int:
        """Return into how many shares an answer is split where there are so many `nodes`."""
        return self.committee or nodes

    def members(self, *, holder: int, nodes: int) -> list[int]:
        """Return the nodes, by index, that get the shares of a data holder, in their order."""
        first = 0 if self.committee is None else holder
        return [(first + place) % nodes for place in range(self.shares(nodes))]

    def _place(self, *, holder: int, node: int, nodes: int) -> tuple[int, int]:
        """Return a node's place among a data holder's nodes, and which place gets the vector.

        Raises:
            ValueError: the node is not of the data holder's committee.
        """
        if self.committee is None:
            return node, holder % nodes
        place = (node - holder) % nodes
        if place >= self.committee:
            raise ValueError("the node is not of the data holder's committee")
        return place, holder // nodes % self.committee

    def _committee_refusal(self, *, nodes: int, minimum_committee: int | None) -> str | None:
        if self.committee is None:
            return None
        if minimum_committee is None:
            return "the policy allows no committees: each answer goes to all Compute nodes"
        if self.committee < minimum_committee:
            return f"the policy demands committees of at least {minimum_committee} Compute nodes"
        if self.committee >= nodes:
            return "a committee must have fewer nodes than there are Compute nodes"
        return None
