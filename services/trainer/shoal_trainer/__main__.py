"""`python -m shoal_trainer`: runs a trainer until it is told to stop."""

from functools import partial

from shoal_hosting.service import run_service
from shoal_trainer.assembly import assemble

if __name__ == "__main__":
    run_service("trainer", partial(assemble, long_polls=True), tick_seconds=0.5)
