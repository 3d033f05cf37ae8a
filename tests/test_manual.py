"""Manual pages: every command has one, with all it takes, and man(1) finds nothing wrong in them."""

import shutil
import subprocess
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cli import manual
from tuner.cli.main import main

PAGES = dict(manual.pages())


def commands(command: click.Command, *path: str) -> dict[str, click.Command]:
    """Every command by its words."""
    found = {" ".join(path): command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found |= commands(inner, *path, name)
    return found


COMMANDS = commands(main, "tuner")


def test_every_command_has_a_page() -> None:
    """There is a page for each command, and none for anything else."""
    assert set(PAGES) == {f"{name.replace(' ', '-')}.1" for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_all_options(name: str) -> None:
    """Every option stands on its command's page, with its help; every argument in the synopsis.

    Spellings of earlier versions, which are taken and hidden, stand nowhere.
    """
    text = PAGES[f"{name.replace(' ', '-')}.1"].replace("\\-", "-").replace("\\e", "\\")
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            if parameter.hidden:
                assert parameter.name == "called_earlier"
                continue
            for spelling in (*parameter.opts, *parameter.secondary_opts):
                assert spelling in text
            assert (parameter.help or "").split(".")[0].split("`")[0] in text
        else:
            assert parameter.make_metavar(click.Context(COMMANDS[name])) in text


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if isinstance(one, click.Group)])
def test_the_list_of_commands_cuts_no_sentence(name: str) -> None:
    """On 80 columns, what a group's help says of each command is whole."""
    text = COMMANDS[name].get_help(click.Context(COMMANDS[name], info_name=name, terminal_width=80))

    assert [line for line in text.partition("Commands:")[2].splitlines() if line.endswith("...")] == []


def test_values_are_named_for_people() -> None:
    """A value stands as N, SECONDS, FILE, ..., never as the name of its type."""
    texts = [one.get_help(click.Context(one, info_name=name)) for name, one in COMMANDS.items()]

    assert [text for text in texts if "INTEGER RANGE" in text or "FLOAT RANGE" in text] == []


def test_a_group_names_its_commands() -> None:
    """The page of a group lists its commands and refers to their pages."""
    text = PAGES["tuner-power.1"]
    assert "\\fBwatch\\fR" in text
    assert "\\fBtuner\\-power\\-watch\\fR(1)" in text


def test_pages_are_sound(tmp_path: Path) -> None:
    """man(7)'s own formatter has no warning for any page."""
    if shutil.which("groff") is None:
        pytest.skip("no groff here")
    manual.main(str(tmp_path))
    ran = subprocess.run(
        ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-z", *sorted(map(str, tmp_path.glob("*.1")))],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stderr == ""


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_text_is_printed_as_it_is(text: str) -> None:
    """No text becomes a request or an escape of man(7)."""
    escaped = manual.escaped(text)
    assert not escaped.startswith((".", "'"))
    assert escaped.removeprefix("\\&").replace("\\-", "-").replace("\\e", "\\") == text


def test_literal_lines_stay_lines() -> None:
    """What click leaves as it stands is not filled."""
    text = PAGES["tuner-completion.1"]
    assert ".nf\ntuner completion bash > ~/.local" in text
