"""The command ``tuner occupancy``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tuner.cli.main import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["occupancy", *arguments])


TX1 = ("--device", "sim:jetson-tx1")


def test_the_numbers_and_the_limit_are_printed() -> None:
    """Blocks, warps, occupancy and what binds stand on the screen."""
    result = run(*TX1, "--threads", "64", "--registers", "40")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "device         sim:jetson-tx1, compute capability 5.3",
        "blocks per SM  24 of 32",
        "warps per SM   48 of 64",
        "occupancy      75 %",
        "limited by     registers",
    ]


def test_limits_that_bind_together_are_all_printed() -> None:
    """A configuration that uses everything up says so."""
    result = run(*TX1, "--threads", "64", "--registers", "32", "--shared-bytes", "2048")
    assert "occupancy      100 %" in result.stdout
    assert "limited by     blocks (with warps, registers, shared-memory)" in result.stdout


@pytest.mark.parametrize("to_file", [False, True])
def test_json_has_the_numbers(tmp_path: Path, to_file: bool) -> None:
    """The document holds what the screen shows; with "-" it alone is on standard output."""
    path = tmp_path / "occupancy.json"
    result = run(*TX1, "--threads", "96", "--shared-bytes", "5000", "--json", str(path) if to_file else "-")
    assert result.exit_code == 0
    document = json.loads(path.read_text() if to_file else result.stdout)
    assert document == {
        "device": "sim:jetson-tx1",
        "threads_per_block": 96,
        "registers_per_thread": 0,
        "shared_bytes": 5000,
        "blocks_per_sm": 12,
        "warps_per_sm": 36,
        "occupancy": 0.5625,
        "limited_by": "shared-memory",
        "binding": ["shared-memory"],
    }
    assert "limited by     shared-memory" in (result.stdout if to_file else result.stderr)


def test_a_block_that_does_not_fit_is_an_answer() -> None:
    """No block fits: the command says what stops it, and that is no error."""
    result = run(*TX1, "--threads", "2048")
    assert result.exit_code == 0
    assert "blocks per SM  0 of 32" in result.stdout
    assert "limited by     block-size: a block has at most 1024 threads" in result.stdout
    result = run(*TX1, "--threads", "64", "--registers", "999")
    assert "limited by     registers: a thread has at most 255 registers" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*TX1, "--threads", "0"), "a block has at least 1"),
        ((*TX1, "--threads", "64", "--registers", "-1"), "cannot be negative"),
        ((*TX1, "--threads", "many"), "--threads"),
        (TX1, "--threads"),
        (("--device", "sim:abacus", "--threads", "64"), "abacus"),
        (("--device", "abacus", "--threads", "64"), "abacus"),
        ((*TX1, "--threads", "64", "--json", "/no/such/folder/x.json"), "/no/such/folder"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], says: str) -> None:
    """What cannot be used ends with exit code 2 and a message that names it."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
