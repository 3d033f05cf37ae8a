"""Which user is at the other end of a connection over the loopback, by the kernel's table of TCP sockets.

Cookies do not tell ports apart: a page that another user of this machine serves on the loopback would be sent
the cookie of ours. With the user known, the cookie alone is of no use to anybody else.
"""

import os
from pathlib import Path

TABLE = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns, see proc_pid_net(5)
_ESTABLISHED = "01"


def is_another_user(client: tuple[str, int], server: tuple[str, int], table: Path = TABLE) -> bool:
    """False for a client of this process's user, or of root, that is still there.

    A socket that nobody holds any more is told as root's, or not at all, whoever had it: who has closed it is
    taken for another user. Where the kernel has no table, everybody is this user.

    Args:
        client: address and port of the client's end, IPv4.
        server: those of this end.
        table: of TCP sockets.
    """
    wanted = [_hex(*client), _hex(*server)]
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except (OSError, ValueError):
        return False
    for line in lines:
        fields = line.split()
        if [fields[_LOCAL], fields[_REMOTE]] == wanted:
            left = fields[_STATE] != _ESTABLISHED and int(fields[_UID]) == 0
            return left or int(fields[_UID]) not in (0, os.geteuid())
    return True


def _hex(host: str, port: int) -> str:
    """An address as the table has it: the bytes of a little-endian machine reversed, then the port."""
    number = int.from_bytes(bytes(map(int, host.split("."))), "little")
    return f"{number:08X}:{port:04X}"
