"""Who is asked to set a GPU's clock, what other users see of it, and the administrator's file."""

import grp
import os
import pwd
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from jetson_trees import build, gpu_node, limits_hz
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockConfig, ClockPaths, ClockRules, load_config, strangers
from tuner.power.clocks.clockd_client import SetterLink
from tuner.power.clocks.control import open_control, survey
from tuner.power.clocks.journal import HeldError, Ownership, SettingJournal

from tuner.model.errors import ClockError, InputError

NOBODY = 65534


@pytest.fixture
def where() -> Iterator[ClockPaths]:
    """A Jetson without a driver, in a folder into which every user may look."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        sysfs = build(folder, "agx-orin")
        nothing = folder / "nothing"
        yield ClockPaths(str(nothing), sysfs / "class/devfreq", nothing, folder / "run", nothing)


def gpu_of(where: ClockPaths) -> str:
    return gpu_node(where.devfreq.parent.parent).name


@pytest.mark.parametrize(
    ("user", "may", "asked"),
    [
        (0, ("set", "ask"), "guardian"),  # who has the helper's locks needs no helper
        (0, ("ask",), "helper"),  # root of a container
        (0, (), "guardian"),  # who says that it may not
        (1000, ("ask",), "helper"),
        (1000, ("set", "ask"), "helper"),  # where all users are in one queue
        (1000, ("set",), "guardian"),
    ],
)
def test_who_is_asked(
    where: ClockPaths, monkeypatch: pytest.MonkeyPatch, user: int, may: tuple[str, ...], asked: str
) -> None:
    """The helper sets where it answers, root and who finds none have a guardian."""

    def reached(name: str) -> SetterLink:
        raise ClockError(f"asked the {name}")

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr("tuner.power.clocks.devfreq.DevfreqActuator.permitted", lambda _: "set" in may)
    monkeypatch.setattr(control, "helper_answers", lambda _: "ask" in may)
    monkeypatch.setattr(control, "reach", lambda _: reached("helper"))
    monkeypatch.setattr(control, "hire", lambda _: reached("guardian"))
    clocks = open_control("GPU-of-cuda", where)
    with pytest.raises(ClockError, match=f"asked the {asked}"), clocks.locked(612):
        pass


def test_what_is_set_under_anothers_lock_is_left_alone(
    where: ClockPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may set clocks minds what root's journal says, for a run and for a reset."""
    assert where.directory is not None
    roots = Ownership(
        SettingJournal(where.directory.with_name("roots"), "devfreq", gpu_of(where)), lambda _: []
    )
    monkeypatch.setattr(control, "directories", lambda own: [own, own.with_name("roots")])
    before = limits_hz(where.devfreq.parent.parent)
    roots.take()
    with closing(open_control("GPU-of-cuda", where)) as clocks:
        with pytest.raises(HeldError, match=f"held by process {os.getpid()}"), clocks.locked(612):
            pass
        with pytest.raises(HeldError):
            control.reset("GPU-of-cuda", where=where)
        assert limits_hz(where.devfreq.parent.parent) == before
        roots.give_up()
        with clocks.locked(612):
            assert limits_hz(where.devfreq.parent.parent) == (612_000_000, 612_000_000)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_everybody_sees_who_holds_a_clock(where: ClockPaths) -> None:
    """What root's locks say another user reads in root's journal, without a word of trouble."""
    assert where.directory is not None
    owner = Ownership(SettingJournal(where.directory, "devfreq", gpu_of(where)), lambda _: [])
    owner.take()
    for announced in (None, 612):
        if announced is not None:
            owner.announce({"min_hz": 1, "max_hz": 2}, announced)
        os.seteuid(NOBODY)
        try:
            (state,) = survey(where)
        finally:
            os.seteuid(0)
        assert state.trouble == ()
        assert (state.announced, state.stale) == (announced, False)
        assert state.owner == (f"process {os.getpid()}" if announced else "")
    owner.give_up()
    assert survey(where)[0].stale


_USERS, _GROUPS = {one.pw_name for one in pwd.getpwall()}, {one.gr_name for one in grp.getgrall()}
ONLY_GROUPS, ONLY_USERS = sorted(_GROUPS - _USERS)[:1], sorted(_USERS - _GROUPS)[:1]


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
    ("name", "says"),
    [
        ("root", ""),
        ("0", ""),
        ("@root", ""),
        ("4294967", ""),
        ("alcie", "there is no such user, and its rules hold for nobody: `getent passwd` lists"),
        ("@4294967", "there is no such group, and its rules hold for nobody: `getent group` lists"),
        *(
            (name, f'no such user, .* is a group of this name, which is written "@{name}"')
            for name in ONLY_GROUPS
        ),
        *((f"@{name}", f'no such group, .* is a user .* is written "{name}"') for name in ONLY_USERS),
        ("", "there is no such user"),
    ],
)
def test_rules_of_nobody_are_told(tmp_path: Path, name: str, says: str) -> None:
    """A user or group that is not there is told with file, key and what would be right."""
    found = config(tmp_path, f'[users."{name}".limits]\n"*" = [345, 900]\n')
    told = strangers(tmp_path / "clockd.toml", found)
    assert len(told) == bool(says)
    assert all(re.search(rf'clockd\.toml: users\."{name}": .*{says}', line) for line in told)


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
