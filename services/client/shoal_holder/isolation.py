"""Takes the network from this process and all that it starts, and finds out what holds.

First an empty network namespace, then a filter of system calls that refuses to make sockets. Where
the system grants neither, a container without network may do the same. So the process tests what
holds, whoever set it up.
"""

import _socket
import ctypes
import os
import platform
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

NO_SOCKETS: Final = "no sockets"
NO_NETWORK: Final = "no network"
NONE: Final = "none"

_FAMILIES: Final = tuple(
    getattr(_socket, name)
    for name in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK")
    if hasattr(_socket, name)
)
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # sched.h
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # prctl.h
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # seccomp.h: SECCOMP_RET_ERRNO, with EPERM
_LOAD, _EQUAL, _RETURN, _AT_LEAST = 0x20, 0x15, 0x06, 0x35  # bpf_common.h
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # of struct seccomp_data
_IO_URING_SETUP: Final = 425  # it makes sockets, too; the same number everywhere
_KNOWN: Final = {  # architecture as audit.h has it, and the number of `socket`
    "x86_64": (0xC000003E, 41),
    "aarch64": (0xC00000B7, 198),
}
_OTHER_INTERFACE: Final = 0x40000000  # x32's calls on x86_64: the same, by other numbers


def isolate() -> str:
    """Take the network away as far as the system allows; return what holds, as `isolation` does.

    Call it while the process has one thread: the system gives others no namespace.
    """
    if hasattr(ctypes.CDLL(None), "unshare") and hasattr(ctypes.CDLL(None), "prctl"):  # Linux
        _leave_network()
        _refuse_sockets()
    return isolation()


def isolation() -> str:
    """Return how this process is cut off from the network: `NO_SOCKETS`, `NO_NETWORK` or `NONE`."""
    if not any(_can_make(family) for family in _FAMILIES):
        return NO_SOCKETS
    try:
        lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    except OSError:
        return NONE
    return NO_NETWORK if all(line.split(":")[0].strip() == "lo" for line in lines) else NONE


def _can_make(family: int) -> bool:
    try:
        _socket.socket(family, _socket.SOCK_DGRAM).close()
    except OSError:  # refused, or unknown to this system
        return False
    return True


def _leave_network() -> None:
    """Move to a network namespace of its own, which has no interface that is up."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(_NEW_USER | _NEW_NETWORK) == 0:
        for name, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),  # files stay who they belong to
            ("gid_map", f"{group} {group} 1"),
        ):
            # if refused, files still have the same owner; only names differ
            with suppress(PermissionError):
                Path(f"/proc/self/{name}").write_text(content)


def _refuse_sockets() -> None:
    """Have the system refuse to make sockets, and calls by numbers of another architecture."""
    known = _KNOWN.get(platform.machine())
    if known is None:
        return
    architecture, make_socket = known
    refused = (make_socket, _IO_URING_SETUP)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 0, len(refused) + 3, architecture),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, len(refused) + 1, 0, _OTHER_INTERFACE),
        *((_EQUAL, len(refused) - place, 0, call) for place, call in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    fields = struct.pack("HL", len(program), ctypes.addressof(code))
    library = ctypes.CDLL(None)
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0:
        library.prctl(_SECCOMP, _FILTER, ctypes.create_string_buffer(fields), 0, 0)
