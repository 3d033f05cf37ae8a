"""Texts from outside reach no terminal and no log with control characters; JSON has them, escaped."""

import io
import json
import logging
import re

import pytest
from cli_process import tuner
from hostile_files import ESCAPES
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from tuner.kernel_tuner.tuning_call import say
from tuner.report.layout import PlainConsole
from tuner.system.logs import JsonFormatter, TextFormatter, entry
from tuner.system.untrusted.reading import PlainFormatter, continued, escaped, plain, plain_line, shortened

HOSTILE = "".join(ESCAPES.values())
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FORGED = "done\n2026-01-31T12:00:00Z INFO job 3: forged"


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    """Whatever text; what is harmless stays as it is, and cleaning again changes nothing."""
    once = plain(text)
    assert not CONTROL.search(once)
    assert plain(once) == once
    assert "\n" not in plain_line(text)
    if text.isprintable() and not any(character in text for character in "\u200e\u200f\u061c"):
        assert once == text
    assert escaped(json.dumps(text)).isprintable()
    assert json.loads(escaped(json.dumps(text))) == text


def test_lines_and_tabs_stay() -> None:
    """In texts of several lines."""
    assert plain("a\tb\r\nc\n") == "a\tb\nc\n"
    assert plain("a\rb") == "a\ufffdb"
    assert plain("naïve µ 漢字 👩\u200d🔬") == "naïve µ 漢字 👩\u200d🔬"


def test_long_messages_are_cut() -> None:
    """A value of megabytes in an error fills no screen."""
    assert len(shortened("x" * 10**6)) < 5000
    assert shortened("a\n" * 10**4).endswith("[cut]")
    assert shortened("short\nlines") == "short\nlines"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_prints_texts_without_their_escapes(terminal: bool) -> None:
    """In tables, styles and plain lines; no markup is taken out of them; colours of our own stay."""
    file = io.StringIO()
    console = PlainConsole(
        file=file, force_terminal=terminal, width=400, color_system="standard" if terminal else None
    )
    table = Table("name")
    table.add_row(f"[link=http://example.invalid]{HOSTILE}")
    console.print(table)
    console.print(f"{HOSTILE} [red]:smile:", style="bold", soft_wrap=True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert not CONTROL.search(text)
    assert "[link=http" in text
    assert "[red]:smile:" in text
    assert ("\x1b[" in file.getvalue()) == terminal


@pytest.mark.parametrize("formatter", [TextFormatter(), PlainFormatter("%(message)s")])
def test_a_log_has_one_entry_for_one_message(formatter: logging.Formatter) -> None:
    """A line break in a name begins no entry; tracebacks are indented, too."""
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (FORGED + HOSTILE,), None)
    first, *others = formatter.format(record).split("\n")
    assert "done" in first
    assert all(line.startswith("    ") for line in others)
    assert not CONTROL.search(formatter.format(record))
    assert continued("a\nb") == "a\n    b"


def test_a_log_in_json_has_the_text_escaped() -> None:
    """One object on one line; the journal gets text without control characters but line breaks."""
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (FORGED + HOSTILE,), None)
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == FORGED + HOSTILE
    assert b"MESSAGE\n" in entry({"MESSAGE": plain(FORGED)})


@pytest.mark.parametrize("words", [("run",), ("kernels", "show"), ("show",), ("export",), ()])
def test_words_of_the_command_line_are_quoted_without_escapes(words: tuple[str, ...]) -> None:
    """In errors of this program and in click's own."""
    result = tuner(*words, HOSTILE if words else f"--x{HOSTILE}")
    assert result.exit_code == 2
    assert not CONTROL.search(result.output)


def test_results_as_kernel_tuner_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of parameters are those of the user, errors those of the compiler."""
    say(HOSTILE)
    assert not CONTROL.search(capsys.readouterr().out)
