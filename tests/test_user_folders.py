"""Folders of a user: an account without a home directory gets a message."""

import pwd

import pytest
from cli_process import SMALL, tuner

VARIABLES = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")


@pytest.mark.parametrize(
    "words",
    [
        ("history",),
        ("best", *SMALL),
        ("run", *SMALL),
        ("kernels", "list"),
        ("db", "path"),
        ("report",),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_user_without_a_home_is_told(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id without an account, as in a container, is told which variable to set."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    result = tuner(*words)

    assert result.exit_code == 2
    assert "has no home directory: set HOME" in result.stderr
