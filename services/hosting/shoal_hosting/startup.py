"""The exception for a process that must not start, and its exit status."""

from typing import Final

CONFIGURATION_ERROR: Final = 78  # EX_CONFIG of sysexits.h; supervisors do not restart on it


class StartupRefused(Exception):
    """The process must not start; the message says why and what to do, and holds no secret."""
