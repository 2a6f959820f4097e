"""Takes part in jobs for a data holder: the agent, and the library for programs of one's own.

from shoal_agent import DataHolder, Policy, read_holder_key, read_records
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_agent.data_holder import DataHolder as DataHolder
    from shoal_holder.keys import read_holder_key as read_holder_key
    from shoal_holder.policy import Policy as Policy
    from shoal_holder.record_files import read_records as read_records
    from shoal_holder.records import Records as Records
    from shoal_hosting.manifests.manifest_book import ManifestBook as ManifestBook

_WHERE = {
    "DataHolder": "shoal_agent.data_holder",
    "ManifestBook": "shoal_hosting.manifests.manifest_book",
    "Policy": "shoal_holder.policy",
    "Records": "shoal_holder.records",
    "read_holder_key": "shoal_holder.keys",
    "read_records": "shoal_holder.record_files",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    """Load a name on first use: a program that reads records needs no connection."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
