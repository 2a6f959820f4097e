"""`python -m shoal_compute`: runs a Compute node until it is told to stop.

`python -m shoal_compute ledger` shows, with the same settings, what it charged; --help says which.

A process that adds shares up for the node loads this module too, and must not load all of the
service with it.
"""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["ledger"]:
        from shoal_compute.ledger_view import show_ledger

        sys.exit(show_ledger(sys.argv[2:]))
    from shoal_compute.assembly import assemble
    from shoal_compute.settings import ComputeSettings
    from shoal_service.running import run_service

    run_service(
        "compute",
        assemble,
        tick_seconds=0.2,
        settings=ComputeSettings,
        also="`python -m shoal_compute ledger` shows what the node charged.",
    )
