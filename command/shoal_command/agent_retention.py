"""`shoal agent retention`: shows what a data holder's agent keeps, and until when."""

from shoal_agent.keeping import Keeping
from shoal_command.connection import AgentData, AgentDirectory, AgentUrl, own_agent
from shoal_command.terminal import AsJson, present


def retention(
    directory: AgentDirectory, data: AgentData, url: AgentUrl, as_json: AsJson = False
) -> None:
    """Show what your running agent keeps, how much, why, and until when.

    Caps and the refusal of replays rest on most of it, so nothing goes by `retention_days`.
    The slots of ids stay too; `shoal records check` alone counts those.
    """
    present(own_agent(directory, url, data).ask(Keeping, "/v1/retention"), as_json)
