"""A kernel file in the making, and its text: what a first kernel file is written from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.cuda_source.signatures import GlobalFunction

AXIS_NAMES = "xyz"


@dataclass
class Draft:
    """A kernel file in the making.

    Attributes:
        notes: what the user should look at, in words.
        missing: what must be filled in before the file can be read.
    """

    source: str
    function: GlobalFunction
    text: str
    entry: str = ""
    sizes: dict[str, list[int]] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    tunables: dict[str, list[int | bool]] = field(default_factory=dict)
    default: dict[str, int | bool] = field(default_factory=dict)
    block: list[str] = field(default_factory=list)
    grid: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def toml(self) -> str:
        """The file."""
        lines = [
            f"# From {self.function.name} of {self.source}: check the lines with comments.",
            f"kernel.source = {quoted(self.source)}",
        ]
        if self.entry:
            lines.append(f"kernel.entry = {quoted(self.entry)}")
        lines += ["", "[problem]"]
        lines += [f"sizes.{name} = {values}  # sizes to tune for" for name, values in self.sizes.items()]
        out = next((n for n, text in self.arguments.items() if text.startswith(("out ", "inout "))), "y")
        lines.append(
            f'# reference.{out} = "..."  # an expression of the inputs; without it answers are only compared'
        )
        lines += ["", "[arguments]", *(f"{name} = {text}" for name, text in self._argument_lines())]
        if self.tunables:
            lines += ["", "[tunables]"]
            lines += [f"{name} = {json.dumps(values)}" for name, values in self.tunables.items()]
        if len(self.block) > 1 and not all(one.isdecimal() for one in self.block):
            lines += ["", "[constraints]", f"rules = [{quoted(' * '.join(self.block) + ' <= 1024')}]"]
        if self.default:
            lines += ["", "[default]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in self.default.items()]
        lines += ["", "[launch]", f"grid = {_listed(self.grid)}  # blocks: is every element reached?"]
        if self.block != [f"block_size_{axis}" for axis in AXIS_NAMES[: len(self.block)]]:
            lines.append(f"block = {_listed(self.block)}  # threads")
        lines += [f"# FILL IN: {text}" for text in self.missing if text.startswith(("kernel.", "tunables:"))]
        return "\n".join(lines) + "\n"

    def _argument_lines(self) -> list[tuple[str, str]]:
        lines = []
        for name, text in self.arguments.items():
            if text.startswith("FILL IN"):
                lines.append((f"# {name}", f'"..."  # {text}'))
                continue
            value, _, comment = text.partition("  # ")
            shown = value if value.startswith("{") else quoted(value)
            lines.append((name, shown + (f"  # {comment}" if comment else "")))
        return lines


def quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def _listed(texts: Sequence[str]) -> str:
    return quoted(texts[0]) if len(texts) == 1 else json.dumps(list(texts))
