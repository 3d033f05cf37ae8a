"""What builds take: compiler flags, and a C header with macros per GPU."""

import re
import shlex
from collections.abc import Mapping, Sequence

from tuner import __version__
from tuner.errors import InputError
from tuner.exchange.exported_run import ExportedRun
from tuner.model import Configuration, TunableValue


def flags(runs: Sequence[ExportedRun]) -> str:
    """The best configurations as ``-Dname=value``, a line per workload; with several, each under a comment.

    Raises:
        InputError: a run has no answer.
    """
    lines = [
        (comment_text(f"# {name} on {run.device}, for {run.objective}"), flag_line(values))
        for run in runs
        for name, values in zip(run.workloads, run.macros(), strict=True)
    ]
    return "".join(f"{comment}\n{line}\n" if len(lines) > 1 else f"{line}\n" for comment, line in lines)


def notes(runs: Sequence[ExportedRun]) -> list[str]:
    """What else builds need than flags: template arguments, and the source that pragmas are expanded to."""
    found = []
    for run in runs:
        for name, build in zip(run.workloads, run.expanded, strict=False):
            if build is not None:
                if build.macros and build.source is not None:
                    found.append(
                        f"{name}: the flags are for the source that `tuner kernels expand {build.source}"
                        " --output FOLDER` writes; with its pragmas a source keeps its own values"
                    )
                found += [f"{name}: launch {entry}" for entry in build.entries if "<" in entry]
    return list(dict.fromkeys(found))


def flag_line(values: Mapping[str, TunableValue]) -> str:
    """A configuration as flags, quoted for a shell where that is needed."""
    return " ".join(shlex.quote(f"-D{name}={macro_value(value)}") for name, value in values.items())


def macro_value(value: TunableValue) -> str:
    """A value as a macro: truth values are 1 and 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def header(runs: Sequence[ExportedRun]) -> str:
    """A C header with the best configurations of all GPUs, chosen by ``TARGET_<GPU>``; else of the first.

    The names of tunables are the macros; with several workloads each begins with the workload.

    Raises:
        InputError: a run has no answer, or two of one GPU have different ones for a workload.
    """
    macros = _by_target(runs)
    workloads = list(dict.fromkeys(name for run in runs for name in run.workloads))
    guard = f"TUNED_{identifier(workloads[0]).upper()}_H"
    targets = list(macros)
    lines = [
        f"/* Written by tuner {__version__}: {comment_text(', '.join(workloads))}.",
        f"   Choose a GPU by -DTARGET_<GPU>: {', '.join(targets)}; without one the first is taken. */",
        f"#ifndef {guard}",
        f"#define {guard}",
    ]
    for i, target in enumerate(targets):
        lines += [f"#{'elif' if i else 'if'} defined({target})", *macros[target]]
    lines += [f"#else  /* as {targets[0]} */", *macros[targets[0]], "#endif", "#endif"]
    return "\n".join(lines) + "\n"


def _by_target(runs: Sequence[ExportedRun]) -> dict[str, list[str]]:
    several = len({name for run in runs for name in run.workloads}) > 1
    seen: dict[tuple[str, str], Configuration] = {}
    macros: dict[str, list[str]] = {}
    for run in runs:
        target = f"TARGET_{identifier(run.device)}"
        answers = zip(run.workloads, run.answer().configurations, run.macros(), strict=True)
        for name, configuration, expanded in answers:
            values = {**configuration, **expanded}  # programs of the host need all tunables
            known = seen.setdefault((target, name), configuration)
            if known != configuration:
                raise InputError(
                    f"{name} on {run.device} has two answers, {known} and {configuration}; name one run"
                )
            prefix = f"{identifier(name)}_" if several else ""
            defines = [
                f"#define {prefix}{identifier(key)} {_whole_line(key, one)}" for key, one in values.items()
            ]
            title = f"/* {comment_text(name)}, for {comment_text(run.objective)} */"
            of_templates = [key for key in configuration if key not in expanded]
            if of_templates:
                names = comment_text(", ".join(of_templates))
                title += f"\n/* Parameters of templates: {names}. Include this file behind the kernel. */"
            macros.setdefault(target, []).extend([title, *defines])
    return macros


def identifier(text: str) -> str:
    """A text as a C identifier: every run of other characters is one underscore."""
    word = re.sub(r"[^0-9A-Za-z_]+", "_", text.strip()).strip("_") or "unnamed"
    return f"_{word}" if word[0].isdigit() else word


def _whole_line(name: str, value: TunableValue) -> str:
    """A value that stays in the line of its ``#define``.

    Raises:
        InputError: it would not.
    """
    text = macro_value(value)
    if not text.isprintable() or "/*" in text or text.endswith("\\"):
        raise InputError(f"{name}: its value {text!r} cannot be a macro of a header")
    return text


def comment_text(text: str) -> str:
    """A text that neither ends a comment nor leaves its line."""
    printed = "".join(letter if letter.isprintable() else " " for letter in text)
    return printed.replace("*/", "* /")
