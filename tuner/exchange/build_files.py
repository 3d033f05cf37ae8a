"""What builds take: options of nvcc, and a C header with macros per GPU."""

import re
from collections.abc import Sequence

from tuner import __version__
from tuner.exchange.build import Build
from tuner.exchange.exported_run import ExportedRun
from tuner.model.errors import InputError
from tuner.model.plan import Configuration
from tuner.untrusted.build_texts import define_line, macro_value, plain_label

_TUNED = "TUNED_"  # begins the name of a value that is no macro of a source


def flags(runs: Sequence[ExportedRun]) -> str:
    """The best configurations as ``-Dname=value``, a line per workload; with several, each under a comment.

    Raises:
        InputError: a run has no answer, or one of its values is not safe in a command.
    """
    lines = [
        (f"# {plain_label(name)} on {plain_label(run.device)} for {plain_label(run.objective)}", build)
        for run in runs
        for name, build in zip(run.workloads, run.builds(), strict=True)
    ]
    written = [(comment, " ".join(_words(build))) for comment, build in lines]
    return "".join(f"{comment}\n{line}\n" if len(lines) > 1 else f"{line}\n" for comment, line in written)


def _words(build: Build) -> list[str]:
    try:
        return build.words()
    except InputError as error:
        raise InputError(f"{error}; --format header has any value, and options in a comment") from error


def notes(runs: Sequence[ExportedRun]) -> list[str]:
    """What else builds need than flags: the source that pragmas are expanded to, what launches are told."""
    found = []
    for run in runs:
        for name, build in zip(run.workloads, run.builds(), strict=True):
            if build.macros and build.source is not None:
                found.append(
                    f"{name}: the flags are for the source that `tuner kernels expand {build.source}"
                    " --output FOLDER` writes; with its pragmas a source keeps its own values"
                )
            found += [f"{name}: launch {words}" for words in build.launches()]
            if any("," in macro_value(value) for value in build.macros.values()):
                found.append(
                    rf"{name}: \, is how nvcc is told of a comma in $(tuner export ...); where the words are"
                    " read by a shell once more, as in a Makefile, take --format header"
                )
    return list(dict.fromkeys(found))


def header(runs: Sequence[ExportedRun]) -> str:
    """A C header with the best configurations of all GPUs, chosen by ``TARGET_<GPU>``; else of the first.

    Macros of the sources have their names. Other tunables, as those of launches and templates, begin with
    ``TUNED_``. With several workloads the names go on with the workload.

    Raises:
        InputError: a run has no answer, two of one GPU have different ones for a workload, or a name or a
            value would define anything else.
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
        answers = zip(run.workloads, run.answer().configurations, run.builds(), strict=True)
        for name, configuration, build in answers:
            known = seen.setdefault((target, name), configuration)
            if known != configuration:
                raise InputError(
                    f"{name} on {run.device} has two answers, {known} and {configuration}; name one run"
                )
            prefix = f"{identifier(name)}_" if several else ""
            others = {key: value for key, value in configuration.items() if key not in build.macros}
            lines = [
                f"/* {comment_text(name)}, for {comment_text(run.objective)} */",
                *(define_line(f"{prefix}{key}", value) for key, value in build.macros.items()),
                *(define_line(f"{_TUNED}{prefix}{identifier(key)}", one) for key, one in others.items()),
            ]
            if build.options:
                lines.insert(1, f"/* Compiled with {comment_text(' '.join(build.options))} */")
            macros.setdefault(target, []).extend(lines)
    for target, lines in macros.items():
        _check_defined_once(target, lines)
    return macros


def _check_defined_once(target: str, lines: Sequence[str]) -> None:
    """Refuse a header in which one line undoes another, as of workloads whose names differ in signs only."""
    defined: dict[str, str] = {}
    for line in dict.fromkeys(one for one in lines if one.startswith("#")):
        name = line.split()[1]
        if name in defined:
            raise InputError(f"{target}: {name} would be defined twice, once as {line!r}; write two files")
        defined[name] = line


def identifier(text: str) -> str:
    """A text as a C identifier: every run of other characters is one underscore."""
    word = re.sub(r"[^0-9A-Za-z_]+", "_", text.strip()).strip("_") or "unnamed"
    return f"_{word}" if word[0].isdigit() else word


def comment_text(text: str) -> str:
    """A text that neither ends a comment nor leaves its line."""
    printed = "".join(letter if letter.isprintable() else " " for letter in text)
    return printed.replace("*/", "* /")
