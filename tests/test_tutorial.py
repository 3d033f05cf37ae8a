"""The commands of ``docs/tutorial.md`` do what the page shows, on a simulated H200."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import tuner

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {"cuda": "saxpy.cu", "toml": "saxpy.toml"}
NUMBER = re.compile(r"\d[\d.,]*")


def steps() -> Iterator[tuple[str, str]]:
    """Files to save, with their text, and commands with what is shown of their output, in order."""
    for kind, body in FENCE.findall(PAGE):
        if kind in FILES:
            yield FILES[kind], body
        elif kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield command, output


def test_the_tutorial_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command ends well and prints the lines of the page in their order, but for the numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_DATABASE", str(tmp_path / "tuner.db"))
    done = []
    for what, text in steps():
        if what in FILES.values():
            Path(what).write_text(text)
            continue
        name, *words = shlex.split(what)
        result = tuner(*words)
        assert (name, result.exit_code) == ("tuner", 0), f"{what}: {result.output}"
        lines = iter(shape(result.output))
        for line in shape(text):
            assert line in lines, f"{what} does not print: {line}\n{result.output}"
        done.append(words[0])

    assert {"kernels", "run", "show", "export", "best"} <= set(done)
    assert "THREADS" in Path("tuned.h").read_text()


def shape(text: str) -> list[str]:
    """Lines without their numbers, and without the spaces that numbers move."""
    return [" ".join(NUMBER.sub("0", line).split()) for line in text.splitlines() if line.strip()]


def test_the_space_is_the_one_of_the_text(tmp_path: Path) -> None:
    """The kernel file of the page has the space that the text speaks of."""
    for kind, body in FENCE.findall(PAGE):
        if kind in FILES:
            (tmp_path / FILES[kind]).write_text(body)
    result = tuner("kernels", "check", tmp_path / "saxpy.toml", "--no-compile")

    assert re.search(r"saxpy:N=67108864 +1 +20 +20 ", result.output)
    assert "It has 20 *configurations*" in PAGE
