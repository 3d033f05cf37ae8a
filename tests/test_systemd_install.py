"""Installing the service: what is written, kept and removed, and what root refuses to run."""

import json
import os
import shutil
import sqlite3
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import tuner
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.daemon import settings_file
from tuner.daemon.installing import steps
from tuner.daemon.installing.steps import Site, Step
from tuner.daemon.settings import Settings
from tuner.database.backup import back_up
from tuner.database.connection import Database
from tuner.kernel_files.trust import trusted
from tuner.model.errors import InputError, InstallError

UNITS = Path(__file__).parent.parent / "systemd"
OPT = Path("/opt/tuner")
LISTED = "etc/tuner/installed.json"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs the service of a machine")


class Systemd:
    """Takes commands down, and fails at one of them where it is told to."""

    def __init__(self, fail_at: str = "") -> None:
        self.commands: list[str] = []
        self.fail_at = fail_at

    def __call__(self, command: Sequence[str]) -> None:
        self.commands.append(" ".join(command))
        if self.fail_at and self.fail_at in self.commands[-1]:
            raise InstallError(f"{self.commands[-1]} ended with 1: it was told to")


SHARED = {"man/man1/tuner.1": "a page\n"}


def image(folder: Path, *, jetson: bool = False, tcp: bool = False) -> Site:
    root = folder / "image"
    root.mkdir(exist_ok=True)
    return Site(OPT, root, jetson=jetson, tcp=tcp, shared=SHARED)


def of_user(folder: Path) -> Site:
    return Site(OPT, config=folder / "config")


def do(steps: Sequence[Step]) -> list[str]:
    for step in steps:
        step.action()
    return [step.words for step in steps]


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_all_units_and_settings_are_written(tmp_path: Path) -> None:
    """An image gets units, users, directories and settings, readable by all; its units are enabled there."""
    site, systemd = image(tmp_path), Systemd()
    do(steps.install(site, systemd))

    found = tree(site.root)
    units = "etc/systemd/system"
    assert set(found) == {
        *(f"{units}/{name}" for name in steps.SYSTEM_UNITS),
        *("etc/sysusers.d/tuner.conf", "etc/tmpfiles.d/tuner.conf"),
        *("etc/tuner/daemon.toml", "etc/tuner/clockd.toml", LISTED),
        *("usr/local/bin/tuner", "usr/local/share/man/man1/tuner.1"),
    }
    assert found[f"{units}/tuner.service"] == (UNITS / "tuner.service").read_text()
    assert (site.root / "etc/tuner/kernels.d").is_dir()
    modes = {path.name: path.stat().st_mode & 0o777 for path in site.root.rglob("*") if path.is_file()}
    assert {name: mode for name, mode in modes.items() if mode != 0o644} == {"tuner": 0o755}
    assert systemd.commands == [
        f"systemctl --root={site.root} enable tuner-clockd.socket tuner.socket tuner.service"
    ]


def test_units_name_the_program_that_is_installed(tmp_path: Path) -> None:
    """Whatever environment the program is in, the services run that one."""
    site = Site(Path("/srv/gpu-tools"), image(tmp_path).root)
    do(steps.install(site, Systemd()))

    for name, text in tree(site.units).items():
        assert "/opt/tuner" not in text, name
    assert "ExecStart=/srv/gpu-tools/bin/tuner daemon\n" in (site.units / "tuner.service").read_text()


@pytest.mark.parametrize("prefix", ["opt/tuner", "/opt/my tuner", "/opt/%h", "/opt/$x", "/opt/a\nb"])
def test_a_prefix_that_units_cannot_hold_is_refused(prefix: str) -> None:
    """A path with a meaning of its own in a unit is refused, with what would be right."""
    with pytest.raises(InputError, match="must be a path from the root"):
        Site(Path(prefix))


def test_drop_ins_come_where_they_are_wanted(tmp_path: Path) -> None:
    """A Jetson and the loopback get their drop-ins; installing without one later removes it."""
    with_both = image(tmp_path, jetson=True, tcp=True)
    do(steps.install(with_both, Systemd()))
    found = tree(with_both.units)
    for name in (
        "tuner.service.d/jetson.conf",
        "tuner.service.d/tcp.conf",
        "tuner-clockd.service.d/jetson.conf",
    ):
        assert found[name] == (UNITS / name).read_text()
    assert (with_both.root / "etc/sysusers.d/tuner-jetson.conf").is_file()

    do(steps.install(image(tmp_path, jetson=True), Systemd()))
    assert set(found) - set(tree(with_both.units)) == {"tuner.service.d/tcp.conf"}


def test_a_jetson_is_told_by_its_device_tree(tmp_path: Path) -> None:
    """A board whose device tree says tegra is one; a machine without a device tree is none."""
    assert not steps.is_jetson(tmp_path)
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/compatible").write_bytes(b"nvidia,p2371-2180\0nvidia,tegra210\0")
    assert steps.is_jetson(tmp_path)


def test_a_second_call_changes_nothing(tmp_path: Path) -> None:
    """Installing what is installed writes no file and restarts nothing."""
    site, systemd = of_user(tmp_path), Systemd()
    do(steps.install(site, systemd))
    times = {path: path.stat().st_mtime_ns for path in site.settings.parent.rglob("*")}
    first = list(systemd.commands)
    words = do(steps.install(site, systemd))

    assert {path: path.stat().st_mtime_ns for path in site.settings.parent.rglob("*")} == times
    assert not [line for line in words if line.startswith(("write", "replace", "remove"))]
    assert systemd.commands == first * 2
    assert first == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now tuner.socket tuner.service",
    ]


def test_changed_units_are_replaced_and_taken_into_use(tmp_path: Path) -> None:
    """A unit of an older version, or one changed by hand, becomes that of this version, and is restarted."""
    site, systemd = of_user(tmp_path), Systemd()
    do(steps.install(site, Systemd()))
    (site.units / "tuner.service").write_text("old")
    words = do(steps.install(site, systemd))

    assert f"replace {site.units / 'tuner.service'}" in words
    assert "/opt/tuner/bin/tuner daemon" in (site.units / "tuner.service").read_text()
    assert "systemctl --user try-restart tuner.service" in systemd.commands


def test_a_drop_in_that_goes_is_no_longer_in_force(tmp_path: Path) -> None:
    """What an installation had and this one has not is removed, and the service started without it."""
    site, systemd = of_user(tmp_path), Systemd()
    do(steps.install(site, Systemd()))
    listed, drop_in = site.settings / "installed.json", site.units / "tuner.service.d/tcp.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("")
    record = json.loads(listed.read_text())
    record["files"][str(drop_in)] = ""
    listed.write_text(json.dumps(record))

    assert f"remove {drop_in}" in do(steps.install(site, systemd))
    assert "systemctl --user try-restart tuner.service" in systemd.commands


def test_changed_sockets_are_made_anew(tmp_path: Path) -> None:
    """A socket whose unit says another group or mode than before has it after an upgrade."""
    site, systemd = of_user(tmp_path), Systemd()
    do(steps.install(site, Systemd()))
    (site.units / "tuner.socket").write_text("old")
    do(steps.install(site, systemd))

    assert "systemctl --user try-restart tuner.socket tuner.service" in systemd.commands


def test_edited_settings_are_kept(tmp_path: Path) -> None:
    """daemon.toml that the administrator edited, or had before, survives installing and removing."""
    site = image(tmp_path)
    mine, before = site.settings / "daemon.toml", site.settings / "clockd.toml"
    site.settings.mkdir(parents=True)
    before.write_text("# from before\n")
    do(steps.install(site, Systemd()))
    mine.write_text("# mine\n")

    words = do(steps.install(site, Systemd()))
    assert f"keep {mine}, which has changed since the installation" in words
    words = do(steps.uninstall(site, Systemd()))
    assert f"keep {mine}, which has changed since the installation" in words
    assert tree(site.root) == {
        "etc/tuner/daemon.toml": "# mine\n",
        "etc/tuner/clockd.toml": "# from before\n",
    }


def test_another_command_of_the_name_is_kept(tmp_path: Path) -> None:
    """A `tuner` that somebody else put among the machine's commands is neither replaced nor removed."""
    site = image(tmp_path)
    command = site.root / "usr/local/bin/tuner"
    command.parent.mkdir(parents=True)
    command.write_text("another")
    do(steps.install(site, Systemd()))
    do(steps.uninstall(site, Systemd()))

    assert tree(site.root) == {"usr/local/bin/tuner": "another"}


def test_unedited_settings_follow_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon.toml that nobody edited becomes that of a new version."""
    site = image(tmp_path)
    do(steps.install(site, Systemd()))
    original = steps._text
    monkeypatch.setattr(steps, "_text", lambda name: original(name) + "# of a new version\n")
    do(steps.install(site, Systemd()))

    assert (site.settings / "daemon.toml").read_text().endswith("# of a new version\n")


def test_the_installed_settings_can_be_used(tmp_path: Path) -> None:
    """What is installed as daemon.toml is read without a complaint, and changes nothing."""
    site = image(tmp_path)
    do(steps.install(site, Systemd()))

    assert settings_file.load(site.settings / "daemon.toml") == Settings()


def test_removing_leaves_nothing_but_what_others_made(tmp_path: Path) -> None:
    """After removal all that was installed is gone and files of others are not; twice is no error."""
    site = image(tmp_path, tcp=True, jetson=True)
    do(steps.install(site, Systemd()))
    (site.settings / "kernels.d/own.toml").write_text("x")
    (site.units / "other.service").write_text("x")
    do(steps.uninstall(site, Systemd()))

    left = {"etc/tuner/kernels.d/own.toml": "x", "etc/systemd/system/other.service": "x"}
    assert tree(site.root) == left
    assert not list(site.units.glob("tuner*"))
    words = do(steps.uninstall(site, Systemd()))
    assert words[0].startswith("nothing is installed")
    assert tree(site.root) == left


def test_results_are_removed_on_request_alone(tmp_path: Path) -> None:
    """Results stay, and that is said; with --purge they go, but for those of a directory of one's own.

    A link among them leads to nobody's loss.
    """
    site = image(tmp_path)
    state, precious = site.root / "var/lib/tuner", tmp_path / "precious"
    state.mkdir(parents=True)
    precious.write_text("x")
    (state / "link").symlink_to(precious)

    assert f"keep {state}; --purge removes it" in do(steps.uninstall(site, Systemd()))
    assert state.is_dir()
    elsewhere = site.root / "data/tuner"
    elsewhere.mkdir(parents=True)
    words = do(steps.uninstall(site, Systemd(), with_results=True, state=Path("/data/tuner")))
    assert f"keep {elsewhere}, the results by [service] state of daemon.toml" in words
    assert elsewhere.is_dir()
    assert not state.exists()
    assert precious.is_file()


def administered(folder: Path) -> tuple[Site, list[Path]]:
    """An installed image, and what an administrator has added and changed."""
    site = image(folder, tcp=True)
    do(steps.install(site, Systemd()))
    control = site.root / "etc/systemd/system.control/tuner.service.d/50-CPUWeight.conf"
    drop_in = site.units / "tuner.service.d/override.conf"
    added = [drop_in, control, site.settings / "kernels.d/own.toml", site.settings / "notes"]
    for path in added:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# mine\n")
    (site.settings / "daemon.toml").write_text("# mine\n")
    return site, added


def test_what_an_administrator_added_is_named_and_goes_on_request_alone(tmp_path: Path) -> None:
    """Drop-ins and settings stay and are told; with --purge nothing is left, also in a second call."""
    site, added = administered(tmp_path)
    words = do(steps.uninstall(site, Systemd()))
    assert {f"keep {path}; --purge removes it" for path in added} <= set(words)
    assert f"keep {site.settings / 'daemon.toml'}, which has changed since the installation" in words
    assert all(path.read_text() == "# mine\n" for path in added)

    words = do(steps.uninstall(site, Systemd(), with_results=True))
    assert words[0].startswith("nothing is installed")
    assert f"remove {site.settings} and all that is in it" in words
    assert tree(site.root) == {}
    assert not [word for word in words if word.startswith("keep /")]


@pytest.mark.parametrize("after", range(0, 24, 3))
def test_a_purge_half_way_is_finished(tmp_path: Path, after: int) -> None:
    """Wherever it ends, a second call removes the rest."""
    site, _ = administered(tmp_path)
    do(steps.uninstall(site, Systemd(), with_results=True)[:after])
    do(steps.uninstall(site, Systemd(), with_results=True))

    assert tree(site.root) == {}


def test_drop_ins_of_a_user_are_named(tmp_path: Path) -> None:
    """They are the user's."""
    site = of_user(tmp_path)
    do(steps.install(site, Systemd()))
    drop_in = site.units / "tuner.service.d/override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("# mine\n")

    assert f"keep {drop_in}, which is yours" in do(steps.uninstall(site, Systemd()))
    assert drop_in.exists()


def test_removing_stops_first(tmp_path: Path) -> None:
    """The service is stopped and disabled while its unit is still there to say how."""
    site, systemd = of_user(tmp_path), Systemd()
    do(steps.install(site, Systemd()))
    words = do(steps.uninstall(site, systemd))

    assert systemd.commands == [
        "systemctl --user disable --now tuner.socket tuner.service",
        "systemctl --user daemon-reload",
    ]
    assert words[0] == f"run {systemd.commands[0]}"
    assert not site.settings.exists()


@pytest.mark.parametrize("after", range(12))
def test_a_failure_half_way_is_finished_or_undone(tmp_path: Path, after: int) -> None:
    """Wherever installing ends, a second call gives the whole, and removing leaves nothing."""
    whole, half, undone = (image(tmp_path / name) for name in mkdirs(tmp_path, "whole", "half", "undone"))
    do(steps.install(whole, Systemd()))
    for site in (half, undone):
        do(steps.install(site, Systemd())[:after])

    do(steps.install(half, Systemd()))
    do(steps.uninstall(undone, Systemd()))

    assert without_list(half) == without_list(whole)
    assert tree(undone.root) == {}
    do(steps.uninstall(half, Systemd()))
    assert tree(half.root) == {}


@pytest.mark.parametrize("after", range(12))
def test_a_removal_half_way_is_finished(tmp_path: Path, after: int) -> None:
    """Wherever removing ends, a second call removes the rest."""
    site = image(tmp_path)
    do(steps.install(site, Systemd()))
    do(steps.uninstall(site, Systemd())[:after])
    do(steps.uninstall(site, Systemd()))

    assert tree(site.root) == {}


def mkdirs(folder: Path, *names: str) -> tuple[str, ...]:
    for name in names:
        (folder / name).mkdir()
    return names


def without_list(site: Site) -> dict[str, str]:
    """All files but the list, whose paths differ with the root."""
    return {name: text for name, text in tree(site.root).items() if name != LISTED}


def test_a_failing_command_is_told(tmp_path: Path) -> None:
    """What systemd refuses ends the installation with what it said, and the next call goes on."""
    site = of_user(tmp_path)
    with pytest.raises(InstallError, match=r"enable --now .* ended with 1"):
        do(steps.install(site, Systemd(fail_at="enable")))
    do(steps.install(site, Systemd()))
    assert (site.settings / "installed.json").is_file()


@pytest.mark.parametrize("text", ["{", "[]", '{"files": {"a": 1}, "settings": []}', "[" * 100_000])
def test_a_list_that_cannot_be_read_is_not_guessed_at(tmp_path: Path, text: str) -> None:
    """With a damaged list of what was installed nothing is removed, and the message names the file."""
    site = image(tmp_path)
    do(steps.install(site, Systemd()))
    before = without_list(site)
    (site.root / LISTED).write_text(text)

    with pytest.raises(InstallError, match=r"installed\.json"):
        steps.uninstall(site, Systemd())
    assert without_list(site) == before


def environment(folder: Path, python: str = sys.executable) -> Path:
    """An environment with both programs, where root alone can write (in a test: whoever runs it)."""
    for name in ("tuner", "tuner-clockd"):
        (folder / "bin").mkdir(exist_ok=True, mode=0o755, parents=True)
        (folder / "bin" / name).write_text("#!/bin/sh\n")
    (folder / "bin/python").symlink_to(shutil.which(python) or python)
    return folder


@pytest.mark.parametrize("prefix", ["/home/ada/venv", "/root/venv", "/run/user/1000/venv"])
def test_a_program_in_a_home_is_refused(prefix: str) -> None:
    """Services see no homes, so a program there is refused, with where it should be."""
    with pytest.raises(InputError, match="services see nothing of"):
        steps.check_program(Path(prefix), trusted)


def test_a_program_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Root runs nothing in a directory, or of a file, that others can write; the message says which."""
    where = environment(tmp_path / "env")
    with pytest.raises(InputError, match=r"tuner: is not there; install the program for root alone"):
        steps.check_program(tmp_path, trusted)
    (tmp_path / "env/bin/tuner").chmod(0o777)
    with pytest.raises(InputError, match="root must run nothing that others can write: /") as caught:
        steps.check_program(where, trusted)
    assert "python3 -m venv /opt/tuner" in str(caught.value)
    # what a package index has under the name is another project's, and would run as root
    assert "pip install '.[cuda12]'" in str(caught.value)


def test_what_the_program_imports_is_looked_at(tmp_path: Path) -> None:
    """What it imports from outside the environment is judged too: an editable checkout, for one."""
    where, seen = environment(tmp_path / "env"), []

    def noting(path: Path, owners: object, *, most: int) -> Path:
        assert owners == {0}
        assert most > 0
        seen.append(path)
        return path

    (where / "bin/python").unlink()
    answer = json.dumps([str(path) for path in (where / "lib", tmp_path, tmp_path / "none", tmp_path)])
    (where / "bin/python").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (where / "bin/python").chmod(0o755)
    steps.check_program(where, noting)

    assert seen == [where, tmp_path]


def test_a_program_that_does_not_run_is_told(tmp_path: Path) -> None:
    """An environment whose Python lacks the package is refused with what Python said."""
    where = environment(tmp_path / "env")
    (where / "bin/python").unlink()
    (where / "bin/python").write_text("#!/bin/sh\necho 'no module named tuner' >&2; exit 1\n")
    (where / "bin/python").chmod(0o755)

    with pytest.raises(InstallError, match="does not run tuner: no module named tuner"):
        steps.check_program(where, lambda path, *_owners, **_most: path)


def test_the_program_here_can_be_asked() -> None:
    """The question about imports is answered by a real interpreter with this package."""
    found = steps._imported(Path(sys.prefix))

    assert Path(sysconfig.get_path("stdlib")) in found


def test_a_dry_run_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--dry-run prints every step of a user's installation and does none."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = tuner("install-service", "--user", "--dry-run")

    assert result.exit_code == 0, result.output
    assert f"write {tmp_path}/systemd/user/tuner.service" in result.output
    assert "run systemctl --user enable --now tuner.socket tuner.service" in result.output
    assert result.output.endswith("nothing was changed: --dry-run\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--purge",), "--purge goes with --uninstall"),
        (("--user", "--uninstall", "--purge"), "--purge is of the machine's service"),
        (("--user", "--tcp"), "--tcp is of the machine's service"),
        (("--prefix", "relative"), "must be a path from the root"),
        (("--root", "/dev/null"), "--root /dev/null: is no directory"),
        (("--prefix", ""), "is empty; name a path"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: tuple[str, ...], says: str) -> None:
    """Options that say nothing together are refused before anything is done."""
    result = tuner("install-service", "--dry-run", *words)

    assert result.exit_code == 2
    assert says in result.output


def test_only_root_installs_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user is told to become root, or to install it for himself; a user needs a service manager."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)

    result = tuner("install-service")
    assert result.exit_code == 2
    assert "sudo tuner install-service" in result.output
    result = tuner("install-service", "--user")
    assert result.exit_code == 2
    assert "$XDG_RUNTIME_DIR is not set" in result.output


@needs_root
def test_the_command_installs_into_an_image(tmp_path: Path) -> None:
    """The command says each step as it does it, and refuses an image whose program is not root's alone."""
    root = tmp_path / "image"
    environment(root / "opt/tuner")
    result = tuner("install-service", "--root", root, "--prefix", "/opt/tuner", "--dry-run")

    assert result.exit_code == 2  # below /tmp, where everybody may write
    assert "root must run nothing that others can write: /" in result.output


def test_manual_pages_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of the manual, one of each command, do not hide the steps that matter."""
    monkeypatch.setattr(steps, "check_program", lambda *_: None)
    shown = tuner(
        "install-service", "--root", tmp_path, "--prefix", "/opt/tuner", "--dry-run"
    ).output.splitlines()
    pages = [line for line in shown if "/man/man1" in line]

    assert len(pages) == 1
    assert pages[0].startswith("write ")
    assert pages[0].endswith(" manual pages in /usr/local/share/man/man1")
    assert f"write {tmp_path}/etc/systemd/system/tuner.service" in shown


# --- a way to the loopback that is there already, and workers of pools


@needs_root
@pytest.mark.parametrize("kept", ["none", "older", "newer"])
def test_a_program_that_is_older_than_the_database_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """Nothing is written: the daemon would wait for ever. Only a backup that serves is the way back."""
    monkeypatch.setattr(steps, "check_program", lambda *_: None)
    there = tmp_path / "var/lib/tuner/tuner.db"
    Database(there).close()
    backup = there.with_name("before-upgrade.db")
    if kept == "older":
        back_up(there, backup)
    with closing(sqlite3.connect(there)) as connection, connection:
        connection.execute("INSERT INTO migrations VALUES ('of-another', '')")
    if kept == "newer":  # SQLite's own copy: this program backs up nothing that is newer
        shutil.copy(there, backup)
    before = set(tmp_path.rglob("*"))
    result = tuner("install-service", "--root", tmp_path)

    assert result.exit_code != 0
    assert f"{there}: is of a newer tuner than {sys.prefix} (migrations of-another); restore" in result.stderr
    assert f"db restore {backup if kept == 'older' else 'FILE'} --database {there}" in result.stderr
    assert (f"; {backup} is none of these" in result.stderr) == (kept != "older")
    assert set(tmp_path.rglob("*")) == before


@needs_root
@pytest.mark.skipif(shutil.which("systemctl") is None, reason="needs systemctl, which works on an image")
@pytest.mark.parametrize(
    ("words", "answer", "kept"),
    [
        ((), None, True),
        (("--no-tcp",), None, False),
        ((), "y", True),
        ((), "n", False),
        (("--tcp",), None, True),
    ],
)
def test_the_way_to_the_loopback_is_not_lost_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], answer: str | None, kept: bool
) -> None:
    """Installing again asks in a terminal, keeps it elsewhere and says so, and removes it on a word."""
    site = image(tmp_path, tcp=True)
    do(steps.install(site, Systemd()))
    monkeypatch.setattr(steps, "check_program", lambda *_: None)
    monkeypatch.setattr("tuner.cli.daemon.is_terminal", lambda: answer is not None)
    order = ["install-service", "--root", str(site.root), "--prefix", str(OPT), *words]
    result = CliRunner().invoke(main, order, input=answer)

    assert result.exit_code == 0, result.output
    assert (site.units / "tuner.service.d/tcp.conf").exists() == kept
    assert ("Keep that?" in result.output) == (answer is not None)
    assert ("--no-tcp takes it away" in result.output) == (answer is None and not words)


def test_workers_are_started_and_go_with_the_service(tmp_path: Path) -> None:
    """One for each device, of one address; another address restarts them, and uninstalling ends them."""
    site, systemd = image(tmp_path), Systemd()
    with pytest.raises(InputError, match="install-service"):
        steps.start_workers(site, "tls://a:1", ["cuda:0"], systemd)
    do(steps.install(site, Systemd()))
    do(steps.start_workers(site, "tls://a:1", ["cuda:0", "cuda:1"], systemd))
    do(steps.start_workers(site, "tls://a:1", ["cuda:0"], systemd))
    do(steps.start_workers(site, "tls://b:1", ["cuda:0"], systemd))
    systemctl, both = (
        f"systemctl --root={site.root}",
        "tuner-worker@cuda:0.service tuner-worker@cuda:1.service",
    )

    assert systemd.commands == [
        f"{systemctl} try-restart tuner-worker@*.service",
        f"{systemctl} enable --now {both}",
        f"{systemctl} enable --now tuner-worker@cuda:0.service",
        f"{systemctl} try-restart tuner-worker@*.service",
        f"{systemctl} enable --now tuner-worker@cuda:0.service",
    ]
    assert site.worker_settings.read_text() == "TUNER_SCHEDULER=tls://b:1\n"
    wants = site.units / "multi-user.target.wants"
    wants.mkdir()
    for name in both.split():
        (wants / name).symlink_to("../tuner-worker@.service")
    do(steps.uninstall(site, systemd))
    assert systemd.commands[-1].endswith(f"tuner.socket tuner.service {both}")
    assert not site.settings.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tcp://10.0.0.7:8786",), "write tls://10.0.0.7:8786"),
        (("tls://a:1", "--device", "cuda:x"), "unknown device 'cuda:x'"),
        (("tls://a:1", "--device", "replay:h200"), "measures nothing"),
        (("tls://a:65536", "--device", "sim:jetson-tx1"), "write the scheduler's address"),
        (("tls://a:1", "--device", "sim:jetson-tx1"), "set distributed.comm.tls.ca-file"),
    ],
)
def test_workers_that_cannot_be_services_are_refused(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    result = tuner("worker", "--service", *words)

    assert (result.exit_code, says in " ".join(result.stderr.split())) == (2, True), result.stderr
