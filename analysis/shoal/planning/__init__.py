"""Plans what a study would cost by either protocol, from public sizes alone."""

from shoal.planning.comparing import compare
from shoal.planning.prospects import ErrorParts, Prospect
from shoal.planning.study import Study

__all__ = ["ErrorParts", "Prospect", "Study", "compare"]
