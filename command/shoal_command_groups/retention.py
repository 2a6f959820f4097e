"""`shoal retention`: shows what a service keeps and until when, and deletes what is due."""

from typing import Annotated, Any

import typer

from shoal_command.connection import PartyDirectory, ServiceData, own_service
from shoal_command.terminal import AsJson, Yes, confirm, tell


def retention(
    party: PartyDirectory,
    data: ServiceData,
    do: Annotated[
        bool, typer.Option("--do", help="Delete what is due now; the service else does so hourly.")
    ] = False,
    trust_clock: Annotated[
        bool,
        typer.Option(
            "--trust-clock", help="With --do: the service's clock, which leapt, is right."
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show what your running service keeps, how much, why, and until when by the policy.

    What caps, proofs and the log rest on stays for ever. Of a job whose `retention_days` are over
    the rest is deleted, and overwritten on disk; backups made before have it still. Nothing goes by
    a clock that did not go on without a leap for a day since the service's start: if it is right,
    --trust-clock goes on. What a data holder keeps is shown by `shoal agent retention`.
    """
    service = own_service(party, data)
    path = "/v1/retention"
    found = service.ask(dict[str, Any], path)
    if do:
        confirm(
            "Delete?",
            found,
            "What the policy says is due of these is deleted and overwritten now, for good.",
            yes=yes,
        )
        found = service.ask(dict[str, Any], path, method="POST", trust_clock=int(trust_clock))
    due = "Something is due: the service deletes it within the hour, or at once with --do."
    tell(found, as_json, found, due if found["is_due"] else "Nothing is due.")
