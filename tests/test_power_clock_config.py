"""The administrator's file: what it may say, and how it is refused."""

import grp
import os
import pwd
from pathlib import Path

import pytest
from tuner.power.clocks.actuator import ClockConfig, ClockRules, load_config

from tuner.model.errors import InputError


def config(folder: Path, text: str) -> ClockConfig:
    path = folder / "clockd.toml"
    path.write_text(text)
    return load_config(path)


def test_no_file_rules_nothing(tmp_path: Path) -> None:
    """The file is optional."""
    assert load_config(tmp_path / "none.toml").rules("GPU-1") == ClockRules()


def test_ranges_are_found_by_gpu(tmp_path: Path) -> None:
    """A GPU that is named has its own range, any other that of the star, where there is one."""
    found = config(
        tmp_path,
        '[baseline]\n"GPU-1" = [345, 1410]\n[limits]\n"*" = [345, 1755]\n"17000000.gpu" = [306, 306]\n',
    )
    assert found.rules("GPU-1") == ClockRules((345, 1755), (345, 1410))
    assert found.rules("GPU-2") == ClockRules((345, 1755), None)
    assert found.rules("17000000.gpu").limits_mhz == (306, 306)


def test_users_have_rules_of_their_own(tmp_path: Path) -> None:
    """A user's own go before those of a group, and these before all others'; each table and GPU by itself."""
    user = pwd.getpwuid(os.getuid()).pw_name
    group = grp.getgrgid(pwd.getpwuid(os.getuid()).pw_gid).gr_name
    found = config(
        tmp_path,
        '[limits]\n"*" = [345, 1755]\n[baseline]\n"*" = [345, 1410]\n[power_limits]\n"*" = [300, 700]\n'
        f'[users."@{group}".limits]\n"*" = [500, 600]\n"GPU-2" = [510, 520]\n'
        f'[users.{user}.limits]\n"GPU-1" = [900, 1410]\n[users.4294967.power_profiles]\n"*" = [0, 1]\n',
    )
    assert found.rules("GPU-1", os.getuid()) == ClockRules((900, 1410), (345, 1410), (300, 700))
    assert found.rules("GPU-2", os.getuid()).limits_mhz == (510, 520)
    assert found.rules("GPU-3", os.getuid()).limits_mhz == (500, 600)
    assert found.rules("GPU-1", 4294967) == ClockRules((345, 1755), (345, 1410), (300, 700), (0, 1))
    assert found.rules("GPU-1") == ClockRules((345, 1755), (345, 1410), (300, 700))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[baseline", "Expected"),
        ("[base]\n", "unknown key 'base'"),
        ("limits = 5\n", "limits must be a table"),
        ('[limits]\n"*" = 5\n', "5 is not [lowest, highest] in MHz"),
        ('[limits]\n"*" = [5]\n', "is not [lowest, highest]"),
        ('[limits]\n"*" = [900, 345]\n', "[900, 345] is not"),
        ('[limits]\n"*" = [0, 345]\n', "[0, 345] is not"),
        ('[limits]\n"*" = [true, 345]\n', "is not [lowest, highest]"),
        ('[limits]\n"*" = [345.5, 900.0]\n', "is not [lowest, highest]"),
        ('[baseline]\n"*" = [345000000, 900000000]\n', "in MHz"),
        ('[baseline]\n"GPU 1" = [345, 900]\n', "name a GPU by its UUID"),
        ('[baseline]\n"../x" = [345, 900]\n', "name a GPU by its UUID"),
        ("users = 1\n", "there may be tables limits, power_limits, power_profiles"),
        ("[users]\nalice = 1\n", "users.alice: there may be tables"),
        ('[users.alice.baseline]\n"*" = [345, 900]\n', "users.alice: there may be tables"),
        ('[users.alice.limits]\n"*" = [900, 345]\n', "users.alice.limits.*: [900, 345] is not"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """What is wrong is told with the file and the key."""
    with pytest.raises(InputError) as caught:
        config(tmp_path, text)
    assert str(tmp_path / "clockd.toml") in str(caught.value)
    assert says in str(caught.value)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    """A file that cannot be read or is no text is not taken for none."""
    with pytest.raises(InputError, match="is not a file"):
        load_config(tmp_path)
    (tmp_path / "clockd.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_config(tmp_path / "clockd.toml")
