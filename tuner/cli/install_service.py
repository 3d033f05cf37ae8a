"""``tuner install-service``: the daemon as a service of the machine, or of one user."""

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import NamedPath
from tuner.cli.output import echo

if TYPE_CHECKING:
    from tuner.installing.steps import Step


_ROOT = Path("/")
_MANUAL = "/usr/local/share/man/man1"


@click.command("install-service", short_help="Install the daemon as a service, or remove it.")
@click.option("--user", is_flag=True, help="For yourself alone, under your own service manager.")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--uninstall", is_flag=True, help="Stop the service and remove what was installed.")
@click.option("--purge", is_flag=True, help="With --uninstall: remove results and caches, too.")
@click.option("--tcp", is_flag=True, help="Let the service reach the loopback, for [tcp] of daemon.toml.")
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
    uninstall: bool,
    purge: bool,
    tcp: bool,
    root: Path,
    prefix: Path,
) -> None:
    """Install the daemon and the clock helper as services, and start them; --uninstall undoes it.

    Every step is printed. A second call finishes what a first left undone and changes nothing else; an edited
    /etc/tuner/daemon.toml stays as it is. Root may only install a program that nobody else can change.
    """
    from tuner.installing import places, plan, program

    root = root.resolve()
    _check_options(user=user, uninstall=uninstall, purge=purge, tcp=tcp, root=root)
    if not dry_run:
        _check_rights(user=user)
    site = places.Site(
        prefix=prefix,
        root=root,
        config=places.user_config() if user else None,
        jetson=not user and places.is_jetson(root),
        tcp=tcp,
        shared={} if user or uninstall else _shared(),
    )
    if uninstall:
        steps = plan.uninstall(site, with_results=purge)
    else:
        if not user:
            from tuner.kernel_files.trust import trusted

            program.check(prefix, trusted, root)
        steps = plan.install(site)
    for manual, group in itertools.groupby(steps, _of_a_manual_page):
        done = list(group)
        if manual and len(done) > 1:
            echo(f"{manual} {len(done)} manual pages in {_MANUAL}")
        for step in done:
            if not manual or len(done) == 1:
                echo(step.words)
            if not dry_run:
                step.action()
    if dry_run:
        echo("nothing was changed: --dry-run")
    elif not uninstall and not user and root == _ROOT:
        echo("users of the daemon: members of the group tuner")
        echo("users who set GPU clocks without it: members of the group tuner-clocks")
        echo("next: `sudo usermod -aG tuner YOU`, log in again, then `tuner status`")
    elif not uninstall and user:
        echo("next: `tuner status`")


def _of_a_manual_page(step: "Step") -> str:
    """What is done to a page of the manual, such as ``write``; empty for any other step."""
    verb, _, rest = step.words.partition(" ")
    return verb if f"{_MANUAL}/" in rest and rest.partition(",")[0].endswith(".1") else ""


def _shared() -> dict[str, str]:
    """Manual pages and completions, by where they are below /usr/local/share."""
    from tuner.cli import main
    from tuner.cli.completion import SHELLS, script
    from tuner.cli.manual import pages

    places = {
        "bash": "bash-completion/completions/tuner",
        "zsh": "zsh/site-functions/_tuner",
        "fish": "fish/vendor_completions.d/tuner.fish",
    }
    completions = {places[shell]: script(shell, main) + "\n" for shell in SHELLS}
    return completions | {f"man/man1/{name}": text for name, text in pages()}


def _check_options(*, user: bool, uninstall: bool, purge: bool, tcp: bool, root: Path) -> None:
    from tuner.model.errors import InputError

    if not root.is_dir():  # a device, which is no file to click either
        raise InputError(f"--root {root}: is no directory; name the root of a machine's image")
    if purge and not uninstall:
        raise InputError("--purge goes with --uninstall: it removes results")
    if user and (purge or tcp or root != _ROOT):
        given = "--purge" if purge else "--tcp" if tcp else "--root"
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
