"""Plans what a study would cost by either protocol, from public sizes alone."""

from shoal.planning.comparing import compare
from shoal.planning.study import ErrorParts, Prospect, Study

__all__ = ["ErrorParts", "Prospect", "Study", "compare"]
