"""What the authors' public code took, which has no cryptography, no noise and no dropouts.

CPU seconds of the aggregator's timed part and ten server processes of the Scala and Spark code of
Heikkilä et al. 2017, arXiv:1703.01106, pyspark 3.5, local[2], on a machine of 2 cores and 24 GiB;
shares are plain longs over loopback sockets. Median of several runs; the last three of N = 10^5 and
N = 10^4, d = 10^4 are extrapolated.
"""

from typing import Final

DIMENSIONS: Final = (10, 100, 1_000, 10_000)
CLIENTS: Final = (100, 1_000, 10_000, 100_000)
NODES: Final = 10

AUTHORS: Final[dict[int, dict[int, float]]] = {
    10: {100: 7.2, 1_000: 8.3, 10_000: 12.0, 100_000: 42.9},
    100: {100: 18.4, 1_000: 19.4, 10_000: 43.7, 100_000: 267.3},
    1_000: {100: 74.8, 1_000: 91.8, 10_000: 294.4, 100_000: 2_700.0},
    10_000: {100: 320.0, 1_000: 622.6, 10_000: 3_100.0, 100_000: 27_000.0},
}
"""CPU seconds by dimension, then by the number of clients."""
