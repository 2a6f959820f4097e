"""`python -m shoal_holder`: the vault as a process, between two pipes, without network.

Its arguments are the descriptors that it reads and writes; without them it opens named pipes in
`SHOAL_VAULT_PIPES`. It ends when the courier does.
"""

import os
import sys


def main() -> None:
    """Serve until the courier has ended."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # no plugins of other packages
    from shoal_holder.isolation import isolate

    isolation = isolate()  # before the imports below start threads
    from shoal_holder.serving import serve

    serve(sys.argv[1:], isolation=isolation)


if __name__ == "__main__":
    main()
