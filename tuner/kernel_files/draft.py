"""A kernel file in the making: its lines, and what of them is a guess."""

import json
from dataclasses import dataclass, field

from tuner.kernel_files.cuda_source.signatures import GlobalFunction
from tuner.kernel_files.source_checks import GUESS
from tuner.kernel_files.triton_source import TritonFunction


def quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


@dataclass
class Line:
    """A line of a kernel file: its value, and in words what of it is a guess."""

    value: str
    guess: str = ""

    def __str__(self) -> str:
        return self.value + (f"  {GUESS}: {self.guess}" if self.guess else "")


@dataclass
class Draft:
    """A kernel file in the making.

    Attributes:
        missing: what must be filled in before the file can be read.
        fixed: constants of the source that could be tunables.
    """

    source: str
    function: GlobalFunction | TritonFunction
    entry: Line | None = None
    options: Line | None = None
    sizes: dict[str, Line] = field(default_factory=dict)
    arguments: dict[str, Line] = field(default_factory=dict)
    tunables: dict[str, Line] = field(default_factory=dict)
    default: dict[str, int | bool] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    launch: dict[str, Line] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)

    def toml(self) -> str:
        """The file."""
        look = f"Look at the lines with {GUESS}, and take the word out."
        lines = [
            f"# From {self.function.name} of {self.source}. {look}",
            f"kernel.source = {quoted(self.source)}",
        ]
        lines += [f"kernel.entry = {self.entry}"] if self.entry else []
        lines += [f"kernel.options = {self.options}"] if self.options else []
        lines += ["", "[problem]", *(f"sizes.{name} = {line}" for name, line in self.sizes.items())]
        outs = [
            name
            for name, line in self.arguments.items()
            if line.value.startswith(('"out', '"inout', '"restored'))
        ]
        lines.append(
            f'# reference.{outs[0] if outs else "y"} = "..."  # an expression of the inputs;'
            " without it answers are only compared"
        )
        for title, table in (("arguments", self.arguments), ("tunables", self.tunables)):
            lines += (
                ["", f"[{title}]", *(f"{name} = {line}" for name, line in table.items())] if table else []
            )
        if self.fixed:
            name, value = next(iter(self.fixed.items()))
            named = ", ".join(f"{name} = {value}" for name, value in self.fixed.items())
            lines += [
                f"# Fixed by the source: {named}. To tune one, leave room for it there by three lines",
                f"# (#ifndef {name}, #define {name} {value}, #endif), and draft again or add it here.",
            ]
        if self.rules:
            lines += ["", "[constraints]", f"rules = {json.dumps(self.rules)}"]
        if self.default:
            lines += ["", "[default]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in self.default.items()]
        lines += ["", "[launch]", *(f"{name} = {line}" for name, line in self.launch.items())]
        lines += [f"# FILL IN: {text}" for text in self.missing if not text.startswith("arguments.")]
        return "\n".join(lines) + "\n"

    @property
    def guesses(self) -> list[str]:
        """All guesses, in words."""
        tables = {
            "kernel": {
                name: line for name, line in (("entry", self.entry), ("options", self.options)) if line
            },
            "sizes": self.sizes,
            "arguments": self.arguments,
            "tunables": self.tunables,
            "launch": self.launch,
        }
        return [
            f"{table}.{name}: {line.guess}"
            for table, lines in tables.items()
            for name, line in lines.items()
            if line.guess
        ]
