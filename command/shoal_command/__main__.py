"""`python -m shoal_command`: the `shoal` command."""

from shoal_command import main

if __name__ == "__main__":
    main()
