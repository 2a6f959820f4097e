"""What a study would cost by either protocol, from public sizes alone; it asks nobody anything."""

from shoal_client.planning.comparing import compare
from shoal_client.planning.prospects import ErrorParts, Prospect
from shoal_client.planning.study import Study

__all__ = ["ErrorParts", "Prospect", "Study", "compare"]
