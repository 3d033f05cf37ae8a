"""Which user is at the other end of a connection over the loopback, by the kernel's table of TCP sockets.

Cookies do not tell ports apart: a page that another user of this machine serves on the loopback would be sent
the cookie of ours. With the user known, the cookie alone is of no use to anybody else.
"""

import os
from pathlib import Path

TABLE = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID = 1, 2, 7  # columns, see proc_pid_net(5)


def is_another_user(client: tuple[str, int], server: tuple[str, int], table: Path = TABLE) -> bool:
    """True where the kernel says that a client's socket belongs to another user than this process's, or root.

    Where it says nothing, as across the border of a container, this is False.

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
            return int(fields[_UID]) not in (0, os.geteuid())
    return False


def _hex(host: str, port: int) -> str:
    """An address as the table has it: the bytes of a little-endian machine reversed, then the port."""
    number = int.from_bytes(bytes(map(int, host.split("."))), "little")
    return f"{number:08X}:{port:04X}"
