"""Manual pages and shell completion: every command has them, with all it takes, in a form that tools read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_process import tuner
from click.shell_completion import ShellComplete
from hypothesis import given
from hypothesis import strategies as st
from scripted_daemon import ScriptedDaemon, answer, job

from tuner.cli import manual
from tuner.cli.main import main
from tuner.kernel_files.catalog import Catalog
from tuner.model import registry
from tuner.model.objective import NAMES

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


def offered(*words: str) -> list[str]:
    """What is offered for the last word."""
    *before, last = words
    completed = ShellComplete(main, {}, "tuner", "_TUNER_COMPLETE").get_completions(list(before), last)
    return [item.value for item in completed]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    """Every shell's script asks tuner itself for completions, and stands alone on standard output."""
    result = tuner("completion", shell)
    assert result.exit_code == 0
    assert f"_TUNER_COMPLETE={shell}_complete" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_read_by_their_shells(shell: str, tmp_path: Path) -> None:
    """The shell itself finds nothing wrong with its script."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(tuner("completion", shell).stdout)
    subprocess.run([shell, "-n", str(script)], check=True, capture_output=True)


def test_bash_completes_through_its_script(tmp_path: Path) -> None:
    """Bash, with the script read, completes a command and a policy by calling tuner."""
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    called = tmp_path / "tuner"
    called.write_text(f"#!{shutil.which('env')} python3\nfrom tuner.cli.main import main\nmain()\n")
    called.chmod(0o755)
    lines = [
        *(tuner("completion", "bash").stdout, "COMP_WORDS=(tuner run --policy bay)", "COMP_CWORD=3"),
        f'_tuner_completion {called}; echo "${{COMPREPLY[@]}}"',
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "bayesian\n"


@pytest.mark.parametrize("command", ["run", "submit", "best", "explain"])
def test_kernels(command: str) -> None:
    """Workloads begin with the name of a kernel."""
    assert offered(command, "scan") == [n for n in Catalog.load().kernels if n.startswith("scan")]


def test_policies_devices_objectives() -> None:
    """Options offer what they take."""
    assert offered("run", "--policy", "") == list(registry.names("policy"))
    assert "sim:jetson-tx1" in offered("submit", "--device", "sim:j")
    assert offered("best", "--objective", "") == list(NAMES)


def test_jobs(tmp_path: Path) -> None:
    """Numbers of jobs are those of the daemon, newest first; without a daemon there are none."""
    with ScriptedDaemon(tmp_path / "s", lambda _: answer({"jobs": [job(12), job(11), job(2)]})) as daemon:
        assert offered("follow", "--socket", str(daemon.path), "1") == ["12", "11"]
    assert offered("cancel", "--socket", str(tmp_path / "s"), "") == []


def test_commands_and_options() -> None:
    """What click knows is offered too: commands, options, choices."""
    assert offered("cancel"[:3]) == ["cancel"]
    assert "--max-slowdown" in offered("submit", "--max")
    assert offered("jobs", "--state", "qu") == ["queued"]
    assert isinstance(main, click.Group)
