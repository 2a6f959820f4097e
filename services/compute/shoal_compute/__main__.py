"""`python -m shoal_compute`: runs a Compute node until it is told to stop."""

from shoal_compute.assembly import assemble
from shoal_hosting.service import run_service

if __name__ == "__main__":
    run_service("compute", assemble, tick_seconds=0.05)
