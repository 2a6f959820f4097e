"""What a data holder's clients were charged, by the journal that it shows its owner."""

from collections import defaultdict

from shoal_agent.data_holder import DataHolder
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.wire.encoding import decode_clients


async def costs_of(holder: DataHolder) -> dict[int, list[Cost]]:
    """Return what each client was charged, one by one."""
    found = defaultdict[int, list[Cost]](list)
    for entry in await holder.chain(count=10_000):
        assert entry.statement is not None
        said = entry.statement.document
        if entry.statement.kind in ("answer", "charge", "contribution"):
            for client in decode_clients(said["slots"]):
                found[client].append(Cost.stated(said["mu"], said["epsilon"]))
    return dict(found)
