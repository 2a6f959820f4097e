"""`python -m shoal_trainer`: runs a trainer until it is told to stop."""

from shoal_service.running import run_service
from shoal_trainer.assembly import TrainerSettings, assemble_serving

if __name__ == "__main__":
    run_service("trainer", assemble_serving, tick_seconds=0.5, settings=TrainerSettings)
