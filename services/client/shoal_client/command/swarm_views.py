"""What both swarms show of themselves: their progress, and what each kind of request took."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table

from shoal_client.command.terminal import output
from shoal_client.swarm.metering import RequestFigures


def drawn_anew(progress: RenderableType) -> AbstractContextManager[object]:
    """Show `progress` several times a second while the context lasts; nothing if nobody looks."""
    console = output()
    if not console.is_terminal:
        return nullcontext()
    return Live(progress, console=console, refresh_per_second=4)


def requests_table(requests: Mapping[str, RequestFigures]) -> Table:
    """Return what requests took, by their kind."""
    table = Table("requests", "count", "p50 ms", "p95 ms", "p99 ms", "bytes sent")
    for kind, figures in sorted(requests.items()):
        table.add_row(
            kind,
            f"{figures.count:,}",
            f"{figures.p50_milliseconds:,.1f}",
            f"{figures.p95_milliseconds:,.1f}",
            f"{figures.p99_milliseconds:,.1f}",
            f"{figures.sent_bytes:,}",
        )
    return table
