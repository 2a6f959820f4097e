"""`python -m shoal_holder.sampling`: draws as many integers as each line asks for."""

import signal
import sys
from contextlib import suppress

from shoal_holder.sampling.exact import discrete_gaussian, discrete_laplace

_BY_NAME = {"discrete_gaussian": discrete_gaussian, "discrete_laplace": discrete_laplace}


def main() -> None:
    """Draw until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its parent
    with suppress(BrokenPipeError), open(1, "wb", buffering=0, closefd=False) as answers:
        answers.write(b"ready\n")
        for line in sys.stdin:
            name, scale, count = line.split()
            drawn = _BY_NAME[name](float.fromhex(scale), int(count))
            answers.write(drawn.astype("<i8").tobytes())


if __name__ == "__main__":
    main()
