"""Every constant of the regressions' inference, in one table."""

from typing import Final

SAMPLE_ROWS: Final = 1024
DESIGNS: Final = 64
POINT_DESIGNS: Final = 12
AT_BOUNDS: Final = 2.5
LEAST_MOMENT_ERROR: Final = 1e-3
AS_DRAWN: Final = 0.25
CHAIN_WARM_UP: Final = 100
CHAIN_STEPS: Final = 8
SHIFT_OF_WEIGHTED: Final = 1.0
DESIGN_ERRORS: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
PRIOR_PARTS: Final = (0.04, 0.1, 0.2, 0.4, 1.0)
