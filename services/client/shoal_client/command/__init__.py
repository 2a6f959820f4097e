"""The `shoal` command: it reads arguments and prints; the work is done by the modules beside it.

Exit status: 0 done; 1 a mistake in what was asked or in a file; 2 wrong usage; 3 a service
refused; 4 a service could not be reached; 5 the job ended without a posterior; 6 the job has no
posterior yet.
"""

import importlib
import importlib.util

import typer

from shoal_client.command import (
    agent,
    certificate,
    clients,
    consortium,
    crowd,
    job,
    ledger,
    model,
    party,
    plan,
    quickstart,
    records,
    round,
    swarm,
)
from shoal_client.command.terminal import OneLineErrors

app = typer.Typer(
    name="shoal",
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables would show keys
    help="Bayesian learning, with differential privacy, on data that never leaves its owners.",
    epilog=(
        "Exit status: 0 done; 1 a mistake in what was asked or in a file; 2 wrong usage; "
        "3 a service refused; 4 a service could not be reached; 5 the job ended without a "
        "posterior; 6 the job has no posterior yet."
    ),
)
app.add_typer(party.app, name="party")
app.add_typer(consortium.app, name="consortium")
app.add_typer(clients.app, name="clients")
app.add_typer(job.app, name="job")
app.add_typer(crowd.app, name="crowd")
app.add_typer(certificate.app, name="certificate")
app.add_typer(ledger.app, name="ledger")
app.add_typer(round.app, name="round")
app.add_typer(agent.app, name="agent")
app.add_typer(records.app, name="records")
app.add_typer(model.app, name="model")
app.add_typer(swarm.app, name="swarm")
app.command("quickstart")(quickstart.quickstart)
app.command("plan")(plan.plan)


def main() -> None:
    """Run the command; the red team is part of it in a source tree, and not in the wheel."""
    if importlib.util.find_spec("shoal_redteam"):
        app.add_typer(importlib.import_module("shoal_redteam.command").app, name="redteam")
    app()
