"""`python -m shoal_client`: the `shoal` command."""

from shoal_client.command import main

if __name__ == "__main__":
    main()
