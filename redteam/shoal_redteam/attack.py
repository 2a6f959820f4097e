"""What an attack is. Each is one class in a module of `attacks`; the registry finds it there."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import ClassVar

from shoal_redteam.findings import Finding
from shoal_redteam.target import Target


class Attack(ABC):
    """A lie that somebody may tell, with all the ways in which it is tried here."""

    name: ClassVar[str]
    liar: ClassVar[str]
    """Who lies."""
    tries: ClassVar[str]
    """What is tried, in half a sentence."""
    stopped_by: ClassVar[str]
    """What should stop it, in half a sentence."""

    @abstractmethod
    def run(self, target: Target) -> AsyncIterator[Finding]:
        """Carry the attack out, and yield what came of each try.

        Raises:
            CannotAttack: the federation, or what is left of a budget, does not allow to try.
        """
