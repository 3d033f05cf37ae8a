import contextlib
import http.client
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_service import PATIENCE_S, Answer, ServedService, ask, served

from tuner.daemon.http.access import caller_of, group_of
from tuner.daemon.http.server import open_loopback, read_token
from tuner.model.errors import InputError

NOBODY = 65_534
STRANGER = 54_321  # an id that no user and no group has here
# The interpreter itself may lie where only root can read: it is loaded before the user changes.
ASKS = """
import os, socket, sys
path, group, *extra = sys.argv[1:]
os.setgroups(list(map(int, extra)))
os.setgid(int(group))
os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
print(connection.recv(12).decode())
"""


def asked_by_nobody(api: ServedService, group: int, *extra: int) -> "subprocess.CompletedProcess[str]":
    """What the user nobody hears, as a member of these groups."""
    command = [sys.executable, "-I", "-S", "-c", ASKS, str(api.path), *map(str, (group, *extra))]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


class Wire:
    """A connection whose other end is whom a test says."""

    def __init__(self, uid: int, gid: int, groups: list[int] | None, family: int = socket.AF_UNIX) -> None:
        self.family = family
        self._credentials = struct.pack("3i", 1, uid, gid)
        self._groups = groups

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert level == socket.SOL_SOCKET
        if option == socket.SO_PEERCRED:
            return self._credentials[:size]
        if self._groups is None:
            raise OSError(92, "Protocol not available")
        return struct.pack(f"{len(self._groups)}I", *self._groups)


def wire(uid: int, gid: int, groups: list[int] | None) -> socket.socket:
    """A connection whose other end is whom a test says."""
    return cast("socket.socket", Wire(uid, gid, groups))


@given(
    st.sampled_from([0, os.geteuid(), STRANGER, NOBODY]),
    st.integers(0, 5),
    st.lists(st.integers(0, 5)),
    st.none() | st.integers(0, 5),
)
def test_the_socket_s_group_decides(uid: int, gid: int, groups: list[int], owner: int | None) -> None:
    """Root, the own user and members of the group that owns the socket are admitted, and nobody else."""
    caller = caller_of(wire(uid, gid, groups), owner)

    assert caller.peer.uid == uid
    assert caller.admitted == (uid in (0, os.geteuid()) or owner in (gid, *groups))


def test_the_group_of_nobody_is_no_group() -> None:
    """The id that the kernel shows instead of ids it cannot show admits nobody: it can be anybody's."""
    assert not caller_of(wire(STRANGER, NOBODY, [NOBODY]), NOBODY).admitted


def test_groups_are_looked_up_where_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a kernel without SO_PEERGROUPS the groups of the user count, and a user without a name has none."""
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid, 777])
    root = caller_of(wire(1, 1, None), 777)  # user 1 has a name on any Linux
    assert root.admitted
    assert not caller_of(wire(STRANGER, 1, None), 777).admitted


def test_the_group_of_a_socket_is_that_of_its_file(tmp_path: Path) -> None:
    """A Unix socket with a file has its group; others have none."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert group_of(listener) == (tmp_path / "s").stat().st_gid
        (tmp_path / "s").unlink()
        assert group_of(listener) is None
    with socket.socket() as other:
        assert group_of(other) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
@pytest.mark.parametrize(
    ("group", "extra", "heard"),
    [(NOBODY, [], "HTTP/1.1 403"), (STRANGER, [], "HTTP/1.1 200"), (NOBODY, [STRANGER], "HTTP/1.1 200")],
)
def test_another_user_is_refused_unless_of_the_group(group: int, extra: list[int], heard: str) -> None:
    """Even where the socket's mode lets everybody in, only members of its group are answered."""
    with served(mode=0o666, gid=STRANGER) as api:
        done = asked_by_nobody(api, group, *extra)

    assert (done.stdout.strip(), done.stderr) == (heard, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_another_user_cannot_even_connect() -> None:
    """The mode of the socket keeps others out before a byte is read."""
    with served(gid=STRANGER) as api:
        done = asked_by_nobody(api, NOBODY)

    assert "PermissionError" in done.stderr


@pytest.fixture(scope="module")
def tcp() -> Iterator[ServedService]:
    with served(tcp=True) as running:
        yield running


def over_tcp(api: ServedService, host: str, **headers: str) -> Answer:
    assert api.tcp is not None
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", api.tcp.port, PATIENCE_S)) as connection:
        return ask(connection, "GET", "/v1/best?workload=scan-lf", headers={"Host": host, **headers})


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:1"])
def test_the_token_opens_the_loopback(tcp: ServedService, host: str) -> None:
    """With the token any local name of the host will do; nobody's user id is known then."""
    assert tcp.tcp is not None
    answer = over_tcp(tcp, host, Authorization=f"Bearer {tcp.tcp.token}")

    assert answer.status == 200
    assert tcp.service.asked[-1][1].uid is None


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer "}, {"Authorization": "Bearer wrong"}])
def test_without_the_token_there_is_no_answer(tcp: ServedService, given: dict[str, str]) -> None:
    """A missing or wrong token is 401, and says how to send one."""
    answer = over_tcp(tcp, "localhost", **given)

    assert (answer.status, answer.kind) == (401, "unauthorised")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_token_counts_only_as_a_bearer_s(tcp: ServedService) -> None:
    """The token under another scheme is no token, and one that begins right is not right."""
    assert tcp.tcp is not None
    token = tcp.tcp.token
    for value in (f"Basic {token}", token, f"Bearer {token[:-1]}", f"Bearer {token}x"):
        assert over_tcp(tcp, "localhost", Authorization=value).status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "localhost:"]
)
def test_another_host_is_refused_even_with_the_token(tcp: ServedService, host: str) -> None:
    """A page that had its name point here is stopped by the name that its browser sends."""
    assert tcp.tcp is not None
    answer = over_tcp(tcp, host, Authorization=f"Bearer {tcp.tcp.token}")

    assert (answer.status, answer.kind) == (403, "unauthorised")
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_the_token_says_nothing_on_the_unix_socket(tcp: ServedService) -> None:
    """On the Unix socket the kernel's word counts: a wrong token is not looked at."""
    assert tcp.ask("GET", "/v1/status", headers={"Authorization": "Bearer wrong"}).status == 200


def test_a_missing_token_is_made(tmp_path: Path) -> None:
    """The first start makes a random token that its user alone can read; the next one finds it again."""
    first, other = read_token(tmp_path / "token"), read_token(tmp_path / "other")

    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert len(first) >= 32
    assert first != other
    assert read_token(tmp_path / "token") == first


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604, 0o666, 0o700, 0o4600])
def test_a_token_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """A file that others can read or change is an error that names it and the right mode."""
    path = tmp_path / "token"
    read_token(path)
    path.chmod(mode)

    with pytest.raises(InputError, match=rf"{path}.*0600 or 0640"):
        read_token(path)


def test_a_token_file_must_be_a_plain_file_with_a_token(tmp_path: Path) -> None:
    """Links, folders, pipes, short tokens and others' files are refused, and no folder is made."""
    token = tmp_path / "token"
    read_token(token)
    (tmp_path / "link").symlink_to(token)
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "short").chmod(0o600)
    for name in ("link", "folder", "pipe", "short", "nowhere/token"):
        with pytest.raises(InputError, match=str(tmp_path / name)):
            read_token(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_token_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Who owns the file could change the token."""
    path = tmp_path / "token"
    read_token(path)
    os.chown(path, NOBODY, -1)

    with pytest.raises(InputError, match="belong to root"):
        read_token(path)


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    """An error names the key and the port."""
    first = open_loopback(0, tmp_path / "token")
    try:
        with pytest.raises(InputError, match=rf"tcp.port: .*{first.port}"):
            open_loopback(first.port, tmp_path / "token")
    finally:
        for listener in first.sockets:
            listener.close()
