"""``tuner token``: tokens by which clients over TCP show who they are."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import NamedPath
from tuner.cli.output import console, echo, json_option, write_json
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.daemon.tokens import Token

_HOUR_S, _DAY_S = 3600.0, 86_400.0
_LONGEST_DAYS = 3650

_state_option = click.option(
    "--state",
    type=NamedPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The daemon's state directory. Default: of root the service's, else the user's own.",
)
_file_argument = click.argument(
    "file",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="[FILE]",
    required=False,
    callback=lambda _, __, file: None if file == Path("-") else file,  # as of other commands
)


@click.group(short_help="Add, list, rotate and revoke tokens of clients over TCP.")
def token() -> None:
    """Tokens by which clients over TCP show who they are; see [tcp] of daemon.toml.

    The daemon keeps digests alone, and takes a change over within two seconds. A client finds its token in
    the file that TUNER_TOKEN_FILE names.
    """


@token.command(short_help="Add a token, and write it to a file.")
@click.argument("name")
@_file_argument
@click.option(
    "--days",
    type=click.IntRange(1, _LONGEST_DAYS),
    metavar="D",
    help="How long it counts. Default: until it is revoked.",
)
@_state_option
def add(*, name: str, file: Path | None, days: int | None, state: Path | None) -> None:
    """Add a token called NAME, and write it to FILE for its owner alone, or to standard output.

    The holder is a user of its own, token:NAME, with places, shares and jobs as other users have.
    """
    from tuner.daemon.tokens import added

    if file is not None and file.exists():
        raise InputError(f"{file}: is there; `tuner token rotate {name} {file}` replaces the token in it")
    lifetime_s = None if days is None else days * _DAY_S
    _write(state, file, lambda found, secret, now_s: added(found, name, secret, now_s, lifetime_s))
    until = "" if lifetime_s is None else f" until {_day(time.time() + lifetime_s)}"
    echo(f"token {name} counts{until}", err=True)


@token.command(short_help="Give a token another secret; the one before counts for a while.")
@click.argument("name")
@_file_argument
@click.option(
    "--keep-hours",
    type=click.IntRange(0, 24 * _LONGEST_DAYS),
    default=24,
    show_default=True,
    metavar="H",
    help="How long the secret before still counts.",
)
@_state_option
def rotate(*, name: str, file: Path | None, keep_hours: int, state: Path | None) -> None:
    """Give NAME another secret, in the place of the one in FILE, or on standard output.

    It lasts as long as the one before was to last. FILE keeps owner and mode. Unless H is 0, it always holds
    a token that counts, whenever this is interrupted.
    """
    from tuner.daemon.tokens import check_replaceable, rotated

    def change(found: "Sequence[Token]", secret: str, now_s: float) -> "Sequence[Token]":
        tokens = rotated(found, name, secret, now_s, keep_hours * _HOUR_S)
        if file is not None and file.exists():
            check_replaceable(file, found, name)
        return tokens

    _write(state, file, change)
    echo(f"token {name} has another secret; the one before counts for {keep_hours} h at most", err=True)


@token.command("list", short_help="List tokens with their ends.")
@_state_option
@json_option
def list_(*, state: Path | None, json_path: str | None) -> None:
    """List tokens by name: when each was made and when it ends. No secret is known any more."""
    from tuner.daemon.tokens import read
    from tuner.report.layout import rendered, table_lines
    from tuner.report.rows import Column, Table

    found = read(_tokens_file(state))
    if json_path is not None:
        times = [(one.name, one.made_s, one.ends_s) for one in found]
        write_json(
            json_path,
            {"tokens": [{"name": name, "made_s": made, "ends_s": end} for name, made, end in times]},
        )
    out = console(json_path)
    if not found:
        out.print("no tokens: `tuner token add NAME FILE` adds one")
        return
    newest = {one.name: one for one in found}
    now_s = time.time()

    def state_of(one: "Token") -> str:
        if not one.valid(now_s):
            return "ended"
        return "counts" if newest[one.name] is one else "replaced, still counts"

    columns: list[Column[Token]] = [
        Column("name", lambda one: one.name),
        Column("made", lambda one: _day(one.made_s)),
        Column("ends", lambda one: "never" if one.ends_s is None else _day(one.ends_s)),
    ]
    out.print(rendered(table_lines(Table(columns, found, Column("state", state_of)), out.width)))


@token.command(short_help="Take tokens away.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_state_option
def revoke(*, names: tuple[str, ...], state: Path | None) -> None:
    """Take all tokens of these names away; who shows one gets 401 two seconds later."""
    from tuner.daemon.tokens import revoked, update

    update(_tokens_file(state), lambda found: revoked(found, names))
    echo(f"revoked: {', '.join(names)}", err=True)


def _write(
    state: Path | None,
    file: Path | None,
    change: "Callable[[Sequence[Token], str, float], Sequence[Token]]",
) -> None:
    """Make a secret known to the daemon, and to who may read a file.

    The secret is on the disk before the daemon knows it, and in its place after: whoever reads the file at
    any time finds one that counts.
    """
    from tuner.daemon.tokens import new_secret, update

    secret, now_s = new_secret(), float(int(time.time()))
    path = _tokens_file(state)
    with _placed(file, secret):
        update(path, lambda found: change(found, secret, now_s))
    if file is None:
        echo(secret)


@contextmanager
def _placed(file: Path | None, secret: str) -> Iterator[None]:
    from tuner.system.ownership import replacing_file

    if file is None:
        yield
        return
    try:
        with replacing_file(file, f"{secret}\n"):
            yield
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror}; name another file") from error


def _tokens_file(named: Path | None) -> Path:
    """The file of the daemon's tokens.

    Raises:
        InputError: there is no such state directory.
    """
    from tuner.daemon.installing.steps import STATE, user_config
    from tuner.daemon.settings_file import SYSTEM_FILE, service_table
    from tuner.daemon.tokens import NAME
    from tuner.system.user_folders import user_folder

    root = os.geteuid() == 0
    settings = SYSTEM_FILE if root else user_config() / "tuner/daemon.toml"
    service = Path(STATE[0])
    directory = named or service_table(settings if settings.is_file() else None).state
    if directory is None:
        directory = service if root and service.is_dir() else user_folder("state")
    if not directory.is_dir():
        raise InputError(
            f"{directory}: no daemon keeps its state there; start it once, or name its directory with --state"
            + ("" if root else "; tokens of a machine's service are root's: sudo tuner token")
        )
    return directory / NAME


def _day(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, timezone.utc):%Y-%m-%d %H:%M} UTC"
