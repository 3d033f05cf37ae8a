"""``tuner daemon``, ``start``, ``stop`` and ``install-service``: tuning as a service."""

import contextlib
import itertools
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tuner.cli.options import NamedPath
from tuner.cli.output import echo
from tuner.cli.remote import is_terminal, socket_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.daemon.installing.steps import Site, Step
    from tuner.daemon.state import StartOptions


@click.command(short_help="Tune as a service: answer at once, measure when the GPU is free.")
@click.option("--foreground", is_flag=True, help="Run here, until Ctrl-C or SIGTERM.")
@click.option(
    "--config",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings. Default: /etc/tuner/daemon.toml if it exists.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="SPEC",
    help="Tune on cuda:0, sim:jetson-tx1 ...; may be given several times. Default: those of the settings.",
)
@click.option(
    "--state",
    type=NamedPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory of the database. Default: that of the settings, else the user's state directory.",
)
@click.option(
    "--socket",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The socket. Default: that of systemd, else that of the settings, else the user's.",
)
@click.option(
    "--log-format",
    "log_format",
    type=click.Choice(["auto", "journal", "text", "json"]),
    default="auto",
    help="Format of the log on standard error. Default: journal if it goes there, else text.",
)
@click.option("--check", is_flag=True, help="Print the meaning of the settings, or their errors, and end.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the settings, and end.")
def daemon(
    *,
    foreground: bool,
    config: Path | None,
    devices: tuple[str, ...],
    state: Path | None,
    socket: Path | None,
    log_format: Literal["auto", "journal", "text", "json"],
    check: bool,
    schema: bool,
) -> None:
    """Tune as a service.

    The daemon answers `tuner best` at once, tunes what `tuner submit` and daemon.toml name when the GPU is
    free, and continues after a crash or a reboot where it was. `tuner install-service` sets it up under
    systemd.
    """
    if schema:
        from tuner.daemon.settings_file import schema as of_settings

        echo(json.dumps(of_settings(), indent=2))
        return
    from tuner.daemon.settings_file import wrong_device
    from tuner.daemon.start import run
    from tuner.daemon.state import StartOptions
    from tuner.model.errors import InputError

    unknown = [f"--device: {wrong}" for wrong in map(wrong_device, devices) if wrong]
    if unknown:
        raise InputError("\n".join(unknown))
    choices = StartOptions(config, devices, state, socket)
    if check:
        _print_meaning(choices)
        return
    if not foreground and "NOTIFY_SOCKET" not in os.environ:
        raise click.UsageError(
            "say --foreground to run it here; `tuner install-service` makes a service of it"
        )
    sys.exit(run(choices, log_format))


def _print_meaning(choices: "StartOptions") -> None:
    """Print the meaning of the settings, line by line.

    Raises:
        InputError: something is wrong in them; the message says where more may be found.
    """
    from tuner.cli.daemon_summary import sentences
    from tuner.model.errors import InputError

    printed = False
    try:
        for sentence in sentences(choices):
            printed = True
            echo(sentence)
    except InputError as error:
        if printed or isinstance(error.__cause__, OSError):
            raise  # an error behind the first line is the last one, and whole; or there is no file
        raise InputError(f"{error}\nmore mistakes may show when these are mended") from error


_ROOT = Path("/")
_MANUAL = "/usr/local/share/man/man1"


@click.command("install-service", short_help="Install the daemon as a service, or remove it.")
@click.option("--user", is_flag=True, help="For yourself alone, under your own service manager.")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option(
    "--upgrade",
    is_flag=True,
    help="Put this program in the place of the service's, and go back if it is not ready.",
)
@click.option("--uninstall", is_flag=True, help="Stop the service and remove what was installed.")
@click.option(
    "--purge", is_flag=True, help="With --uninstall: remove results, caches, settings and your drop-ins, too."
)
@click.option(
    "--tcp/--no-tcp",
    default=None,
    help="Let the service reach the loopback, for [tcp] of daemon.toml. Default: as it is installed.",
)
@click.option(
    "--root",
    type=NamedPath(file_okay=False, exists=True, path_type=Path),
    default=_ROOT,
    metavar="DIR",
    help="Install into the image of a machine at DIR; nothing is started.",
)
@click.option(
    "--prefix",
    type=NamedPath(path_type=Path),
    default=Path(sys.prefix),
    metavar="DIR",
    help="The environment whose bin/tuner the service runs. Default: the one of this program.",
)
def install_service(
    *,
    user: bool,
    dry_run: bool,
    upgrade: bool,
    uninstall: bool,
    purge: bool,
    tcp: bool | None,
    root: Path,
    prefix: Path,
) -> None:
    """Install the daemon and the clock helper as services, and start them; --uninstall undoes it.

    Every step is printed. A second call finishes what a first left undone and changes nothing else; an edited
    /etc/tuner/daemon.toml stays as it is. Root may only install a program that nobody else can change.

    With --upgrade, a program in an environment of its own takes the place of the service's: that is stopped,
    its database backed up, and the other started. If that does not become ready, the first is started again.
    """
    from tuner.daemon.installing import steps
    from tuner.daemon.installing import upgrade as upgrading
    from tuner.daemon.settings_file import service_table

    root = root.resolve()
    _check_options(user=user, upgrade=upgrade, uninstall=uninstall, purge=purge, tcp=tcp, root=root)
    if not dry_run:
        _check_rights(user=user)
    site = steps.Site(
        prefix=prefix,
        root=root,
        config=steps.user_config() if user else None,
        jetson=not user and steps.is_jetson(root),
        shared={} if user or uninstall else _shared(),
    )
    if not user and not uninstall:
        from tuner.kernel_files.trust import trusted

        steps.check_program(prefix, trusted, root)
    if not uninstall:
        site = replace(site, tcp=_wants_tcp(site, tcp, asked=not dry_run and not upgrade))
    with contextlib.nullcontext() if dry_run else upgrading.alone(site), contextlib.ExitStack() as held:
        begun = [] if uninstall or user or not site.here else upgrading.unfinished(site, held)
        _do_or_go_back(begun, site, held, dry_run=dry_run)
        state = service_table(site.settings / "daemon.toml").state
        if upgrade and not (begun and upgrading.program(site) == str(prefix)):
            _upgrade(site, held, dry_run=dry_run)
        elif uninstall:
            _do(steps.uninstall(site, with_results=purge, state=state), dry_run=dry_run)
        elif not upgrade:
            _check_database(site, state)
            _do(steps.install(site), dry_run=dry_run)
    if dry_run:
        echo("nothing was changed: --dry-run")
    elif not uninstall and not upgrade and not user and root == _ROOT:
        echo("users of the daemon: members of the group tuner")
        echo("users who set GPU clocks without it: members of the group tuner-clocks")
        echo("next: `sudo usermod -aG tuner YOU`, log in again, then `tuner status`")
    elif not uninstall and user:
        echo("next: `tuner status`")


def _check_database(site: "Site", named: Path | None) -> None:
    """Refuse a program that could not use the database that is there; what this user may not see is left.

    Raises:
        StoreError: the database is of a newer program.
    """
    from tuner.daemon.installing.steps import STATE
    from tuner.daemon.installing.upgrade import migrations
    from tuner.system.user_folders import user_folder

    state = site.at(str(named or (user_folder("state") if site.user else STATE[0])))
    if os.access(state, os.R_OK | os.X_OK):
        migrations(site, state)


def _upgrade(site: "Site", held: contextlib.ExitStack, *, dry_run: bool) -> None:
    """Put a site's program in the place of the service's."""
    from tuner.daemon.installing import upgrade as upgrading
    from tuner.daemon.settings_file import load

    state = load(site.settings / "daemon.toml").service.state or Path("/var/lib/tuner")
    _do_or_go_back(upgrading.upgrade(site, state, held), site, held, dry_run=dry_run)
    if not dry_run:
        echo(f"{site.prefix} is in force and ready; the database of before is {state / upgrading.BACKUP}")


def _do_or_go_back(
    order: "Sequence[Step]", site: "Site", held: contextlib.ExitStack, *, dry_run: bool
) -> None:
    """Do the steps of an upgrade; if one fails, or Ctrl-C comes, those back.

    Raises:
        InstallError: one failed.
    """
    from tuner.daemon.installing import upgrade as upgrading
    from tuner.model.errors import InstallError, TunerError

    try:
        _do(order, dry_run=dry_run)
    except (TunerError, OSError, KeyboardInterrupt) as error:
        held.close()
        why = str(error) or "interrupted"
        echo(f"going back: {why}")
        _do(upgrading.back(site, held), dry_run=dry_run)
        raise InstallError(f"{why}; the program of before is in force again") from error


def _do(order: "Sequence[Step]", *, dry_run: bool) -> None:
    """Print each step and do it; pages of the manual are told in one line."""
    for verb, group in itertools.groupby(order, _verb_of_manual_page):
        alike = list(group)
        together = verb and len(alike) > 1
        if together:
            echo(f"{verb} {len(alike)} manual pages in {_MANUAL}")
        for step in alike:
            if not together:
                echo(step.words)
            if not dry_run and (told := step.action()):
                echo(told)


def _wants_tcp(site: "Site", chosen: bool | None, *, asked: bool) -> bool:
    """True where the service is to be reached over TCP; what is installed goes on an explicit word alone."""
    from tuner.daemon.installing import steps

    if chosen is not None or site.user or not steps.has_tcp(site):
        return bool(chosen)
    if asked and is_terminal():
        return click.confirm("The service is reached over TCP (--tcp). Keep that?", default=True)
    echo("keep the way to the loopback, as --tcp had it installed; --no-tcp takes it away")
    return True


def _verb_of_manual_page(step: "Step") -> str:
    """Return the verb of a step on a manual page, such as ``write``; empty for any other step."""
    verb, _, rest = step.words.partition(" ")
    return verb if f"{_MANUAL}/" in rest and rest.partition(",")[0].endswith(".1") else ""


def _shared() -> dict[str, str]:
    """Manual pages and completions, by where they are below /usr/local/share."""
    from tuner.cli.completion import SHELLS, script
    from tuner.cli.main import main
    from tuner.cli.manual import pages

    places = {
        "bash": "bash-completion/completions/tuner",
        "zsh": "zsh/site-functions/_tuner",
        "fish": "fish/vendor_completions.d/tuner.fish",
    }
    completions = {places[shell]: script(shell, main) + "\n" for shell in SHELLS}
    return completions | {f"man/man1/{name}": text for name, text in pages()}


def _check_options(
    *, user: bool, upgrade: bool, uninstall: bool, purge: bool, tcp: bool | None, root: Path
) -> None:
    from tuner.model.errors import InputError

    if not root.is_dir():  # a device, which is no file to click either
        raise InputError(f"--root {root}: is no directory; name the root of a machine's image")
    if purge and not uninstall:
        raise InputError("--purge goes with --uninstall: it removes results and settings")
    if upgrade and (uninstall or root != _ROOT):
        raise InputError(f"--upgrade does not go with {'--uninstall' if uninstall else '--root'}")
    if user and (purge or tcp is not None or upgrade or root != _ROOT):
        given = "--upgrade" if upgrade else "--purge" if purge else "--root" if tcp is None else "--tcp"
        raise InputError(f"{given} is of the machine's service; leave it out, or leave out --user")


def _check_rights(*, user: bool) -> None:
    from tuner.model.errors import InputError

    if user and not os.environ.get("XDG_RUNTIME_DIR"):
        raise InputError("--user: there is no service manager of this user: $XDG_RUNTIME_DIR is not set")
    if not user and os.geteuid() != 0:
        raise InputError(
            "the service of a machine is installed by root: `sudo tuner install-service`; or --user for"
            " yourself alone"
        )


_WAIT_S = 30.0  # the daemon stops within ten seconds
_LOOK_S = 0.05


_user_option = click.option("--user", is_flag=True, help="Your own, of `install-service --user`.")


@click.command(short_help="Stop the daemon; with --until-told for good.")
@click.option(
    "--until-told", is_flag=True, help="Keep it stopped until `tuner start`, whoever asks and after a reboot."
)
@_user_option
@socket_option
def stop(*, until_told: bool, user: bool, socket: str | None) -> None:
    """Stop the daemon. Running jobs go on where they were when it is started again.

    Without --until-told the next client that asks starts the service again, by its socket. A daemon in the
    foreground, without systemd, is told to end, and stays so.
    """
    if socket is not None or not _installed(user=user):
        _stop_foreground(socket)
        return
    if until_told:
        _systemctl(user, "disable", "--now", "tuner.socket", "tuner.service")
        way_back = "tuner start --user" if user else "sudo tuner start"
        click.echo(f"stopped until told: `{way_back}` starts it again")
        return
    _systemctl(user, "stop", "tuner.service")
    click.echo("stopped; the next client starts it again: `tuner stop --until-told` keeps it stopped")


@click.command(short_help="Start the daemon's service, also after `tuner stop --until-told`.")
@_user_option
def start(*, user: bool) -> None:
    """Start the service that `tuner install-service` made, now and after every boot."""
    from tuner.model.errors import InputError

    if not _installed(user=user):
        raise InputError(
            "no service is installed; `tuner install-service` makes one, and `tuner daemon --foreground` runs"
            " the daemon here"
        )
    _systemctl(user, "enable", "--now", "tuner.socket", "tuner.service")
    click.echo("started: `tuner status` shows it")


def _installed(*, user: bool) -> bool:
    from tuner.daemon.installing.steps import user_config

    units = user_config() / "systemd/user" if user else Path("/etc/systemd/system")
    return (units / "tuner.service").exists()


def _systemctl(user: bool, *words: str) -> None:
    """Run a command of systemd.

    Raises:
        InputError: this user may not.
        InstallError: it fails; the message has what it said.
    """
    from tuner.daemon.installing.steps import execute
    from tuner.model.errors import InputError

    if not user and os.geteuid() != 0:
        raise InputError("the service of a machine is root's: put sudo before it; --user is for your own")
    execute(("systemctl", *(("--user",) if user else ()), *words))


def _stop_foreground(socket: str | None) -> None:
    """Have a daemon that nobody starts again end, and wait until it has.

    Raises:
        InputError: it is another user's, or a service manager started it.
        DaemonUnavailableError: none answers.
        DaemonError: it does not end.
    """
    from tuner.client.client import Client
    from tuner.model.errors import DaemonError, InputError
    from tuner.system.ownership import identity_of, is_alive

    client = Client(socket)
    pid = client.status().get("pid")
    path = client.address.path
    if path is None or not isinstance(pid, int) or _listens(path) != pid:
        raise InputError(
            f"the daemon at {client.address} belongs to a service manager or is in a container; stop it there"
        )
    owner = identity_of(pid)
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise InputError(
            f"the daemon at {path} (process {pid}) is another user's, who may stop it"
        ) from error
    except ProcessLookupError:
        pass
    until_s = time.monotonic() + _WAIT_S
    while is_alive(owner) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    if is_alive(owner):
        raise DaemonError(f"process {pid} has not ended within {_WAIT_S:g} s")
    click.echo("stopped; `tuner daemon --foreground` starts it again")


def _listens(path: Path) -> int:
    """The process that made a socket."""
    import socket
    import struct

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_WAIT_S)
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
