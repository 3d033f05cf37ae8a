"""Manual pages, written from the commands themselves: ``python -m tuner.cli.manual FOLDER``."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tuner.cli.output import echo
from tuner.model.version import VERSION

_SECTION = "1"
_EXIT_STATUS = (
    ("0", "success"),
    ("1", "failure; the reason is printed"),
    ("2", "a wrong option, value or file"),
    ("130", "interrupted; measured trials are stored"),
)
_PARAGRAPH = re.compile(r"\n\s*\n")
_CODE = re.compile(r"`([^`]+)`")
_AS_IT_STANDS = "\b"  # click's mark of a paragraph that is not filled


def pages() -> Iterator[tuple[str, str]]:
    """Name of the file and text of every page, the root's first."""
    from tuner.cli.main import main

    yield from _pages(click.Context(main, info_name="tuner", **main.context_settings))


def _pages(ctx: click.Context) -> Iterator[tuple[str, str]]:
    yield f"{_title(ctx)}.{_SECTION}", page(ctx)
    for name, command in _commands(ctx):
        yield from _pages(click.Context(command, info_name=name, parent=ctx, **command.context_settings))


def _commands(ctx: click.Context) -> list[tuple[str, click.Command]]:
    if not isinstance(ctx.command, click.Group):
        return []
    named = [(name, ctx.command.get_command(ctx, name)) for name in ctx.command.list_commands(ctx)]
    return [(name, command) for name, command in named if command is not None and not command.hidden]


def page(ctx: click.Context) -> str:
    """The manual page of one command, in the language of man(7)."""
    title, command = _title(ctx), ctx.command
    lines = [
        f'.TH "{escaped(title.upper())}" "{_SECTION}" "" "tuner {escaped(VERSION)}" "tuner"',
        ".SH NAME",
        f"{escaped(title)} \\- {escaped(command.get_short_help_str(limit=200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {escaped(ctx.command_path)}",
        escaped(" ".join(command.collect_usage_pieces(ctx))),
        ".SH DESCRIPTION",
        *_description(command.help or ""),
        ".SH OPTIONS",
    ]
    environment = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if isinstance(parameter, click.Option) and record is not None:
            lines += [".TP", f"\\fB{escaped(record[0])}\\fR", *_text(record[1])]
            if isinstance(parameter.envvar, str):
                environment.append((parameter.envvar, f"as {parameter.opts[0]}"))
    lines += _table("COMMANDS", [(n, c.get_short_help_str(limit=200)) for n, c in _commands(ctx)])
    lines += _table("ENVIRONMENT", environment)
    lines += _table("EXIT STATUS", list(_EXIT_STATUS))
    near = [] if ctx.parent is None else [_title(ctx.parent)]
    near += [f"{title}-{name}" for name, _ in _commands(ctx)]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{escaped(name)}\\fR({_SECTION})" for name in near)]
    return "\n".join(lines) + "\n"


def _table(title: str, rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    entries = [line for name, text in rows for line in (".TP", f"\\fB{escaped(name)}\\fR", *_text(text))]
    return [f".SH {title}", *entries]


def _description(text: str) -> Iterator[str]:
    unindented = "\n".join(line.strip() for line in text.strip().splitlines())
    for paragraph in _PARAGRAPH.split(unindented):
        yield ".PP"
        if paragraph.startswith(_AS_IT_STANDS):
            yield from (".nf", *_text(paragraph.removeprefix(_AS_IT_STANDS).strip("\n")), ".fi")
        else:
            yield from _text(" ".join(paragraph.split()))


def _text(text: str) -> list[str]:
    """Lines of text; what stands in back quotes is set as what is typed."""
    return [_CODE.sub(lambda code: f"\\fB{code[1]}\\fR", escaped(line)) for line in text.splitlines()]


def escaped(text: str) -> str:
    """The text such that man(7) prints it as it is."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("–", "\\(en").replace("×", "\\(mu")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _title(ctx: click.Context) -> str:
    return ctx.command_path.replace(" ", "-")


def main(folder: str) -> None:
    """Write all pages."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (target / name).write_text(text, "utf-8")
    echo(f"{len(list(target.glob(f'*.{_SECTION}')))} pages in {target}")


if __name__ == "__main__":
    main(*sys.argv[1:])
