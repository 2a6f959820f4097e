"""`python -m shoal_aggregator`: runs an aggregator until it is told to stop."""

from shoal_aggregator.assembly import assemble
from shoal_service.running import run_service

if __name__ == "__main__":
    run_service("aggregator", assemble, tick_seconds=0.5)
