"""Which user is at the other end of a connection over the loopback, by the kernel's table of TCP sockets.

Cookies do not tell ports apart: a page that another user of this machine serves on the loopback would be sent
the cookie of ours. With the user known, the cookie alone is of no use to anybody else.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns, see proc_pid_net(5)
_ESTABLISHED = "01"
_MAPPED = (
    "0000000000000000FFFF0000"  # before an IPv4 address of a socket that takes both, in the second table
)


def is_another_user(
    client: tuple[str, int], server: tuple[str, int], tables: Sequence[Path] = TABLES
) -> bool:
    """False for a client of this process's user, or of root, that is still there.

    A socket that nobody holds any more is told as root's, or not at all, whoever had it: who has closed it is
    taken for another user. Where the kernel has no tables, everybody is this user.

    Args:
        client: address and port of the client's end, IPv4.
        server: those of this end.
        tables: of TCP sockets.
    """
    wanted = [_hex(*client), _hex(*server)]
    lines = list[str]()
    for table in tables:
        with suppress(OSError, ValueError):
            lines += table.read_text("ascii").splitlines()[1:]
    for line in lines:
        fields = line.split()
        if [fields[_LOCAL].removeprefix(_MAPPED), fields[_REMOTE].removeprefix(_MAPPED)] == wanted:
            left = fields[_STATE] != _ESTABLISHED and int(fields[_UID]) == 0
            return left or int(fields[_UID]) not in (0, os.geteuid())
    return any(table.exists() for table in tables)


def _hex(host: str, port: int) -> str:
    """An address as the table has it: the bytes of a little-endian machine reversed, then the port."""
    number = int.from_bytes(bytes(map(int, host.split("."))), "little")
    return f"{number:08X}:{port:04X}"
