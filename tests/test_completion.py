"""Shell completion: scripts that shells can read, and names where they are known at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_process import tuner
from click.shell_completion import ShellComplete
from scripted_daemon import ScriptedDaemon, answer, job

from tuner.cli.main import main
from tuner.kernel_files.catalog import Catalog
from tuner.model import registry
from tuner.model.objective import NAMES


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
