"""Takes part in jobs for a data holder: the agent, and the library for programs of one's own.

from shoal_agent import DataHolder
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_agent.data_holder import DataHolder as DataHolder

__all__ = ["DataHolder"]


def __getattr__(name: str) -> object:
    """Load the class on first use: modules of this package are used without connections, too."""
    if name != "DataHolder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shoal_agent.data_holder import DataHolder

    return DataHolder
