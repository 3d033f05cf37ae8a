"""The administrator's file: what it may say, and how it is refused."""

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
