"""`python -m tests.end_to_end.dying`: runs a module that kills itself at one of its durable steps.

DYING_MODULE is the module, DYING_STEP a step's name and DYING_WHEN "before" or "after" it.
"""

import os
import runpy

from tests.world.durable import Death, DurableSteps, Process, When

if __name__ == "__main__":
    death = Death(When(os.environ["DYING_WHEN"]), "process", os.environ["DYING_STEP"])
    with DurableSteps([death], parties=Process()).watched():
        runpy.run_module(os.environ["DYING_MODULE"], run_name="__main__", alter_sys=True)
