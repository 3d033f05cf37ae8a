"""Texts for builds and frameworks: options of nvcc, headers, wisdom, fused-MoE files, lists of values."""

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tuner.model.errors import InputError
from tuner.model.plan import Configuration, TunableValue, without_place
from tuner.model.version import VERSION
from tuner.recordings.exchange.exported_run import Build, ExportedRun, milliseconds
from tuner.system.untrusted.build_texts import define_line, macro_value, plain_label

_TUNED = "TUNED_"  # begins the name of a value that is no macro of a source


def flags(runs: Sequence[ExportedRun]) -> str:
    """The best configurations as ``-Dname=value``, a line per workload; with several, each under a comment.

    Raises:
        InputError: a run has no answer, or one of its values is not safe in a command.
    """
    lines = [
        (f"# {plain_label(name)} on {plain_label(run.device)} for {plain_label(run.goal)}", build)
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
    """Return what builds need besides flags: the source with expanded pragmas, and launch parameters."""
    sentences = []
    for run in runs:
        for name, build in zip(run.workloads, run.builds(), strict=True):
            if build.macros and build.source is not None:
                sentences.append(
                    f"{name}: the flags are for the source that `tuner kernels expand {build.source}"
                    " --output FOLDER` writes; with its pragmas a source keeps its own values"
                )
            bare = "" if build.macros or build.options else "no flags; "
            sentences += [f"{name}: {bare}launch {words}" for words in build.launches()]
            if any("," in macro_value(value) for value in build.macros.values()):
                sentences.append(
                    rf"{name}: \, is how nvcc is told of a comma in $(tuner export ...); where the words are"
                    " read by a shell once more, as in a Makefile, take --format header"
                )
    return list(dict.fromkeys(sentences))


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
        f"/* Written by tuner {VERSION}: {comment_text(', '.join(workloads))}.",
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
            first = seen.setdefault((target, name), configuration)
            if first != configuration:
                raise InputError(
                    f"{name} on {run.device} has two answers, {first} and {configuration}; name one run"
                )
            prefix = f"{identifier(name)}_" if several else ""
            others = {key: value for key, value in configuration.items() if key not in build.macros}
            lines = [
                f"/* {comment_text(name)}, for {comment_text(run.goal)} */",
                *(define_line(f"{prefix}{key}", value) for key, value in build.macros.items()),
                *(define_line(f"{_TUNED}{prefix}{identifier(key)}", value) for key, value in others.items()),
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
    for line in dict.fromkeys(line for line in lines if line.startswith("#")):
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


MAX_LENGTH = 10_000  # characters of a text
MAX_VALUES = 100_000
_MAX_NUMBER = 2**63
_MAX_POWER = 64
_MAX_DEPTH = 60
_FORMS = (
    "a list as [16, 32], range(1, 9), [2**i for i in range(6)], list(range(32, 1025, 32)), or a sum of these"
)

_Number = int | float
_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def values_of(text: object) -> tuple[TunableValue, ...]:
    """The values that a text lists.

    Args:
        text: the text; or a list, which stands for itself.

    Raises:
        ValueError: it is of another form, or lists nothing; nothing of it was run.
    """
    if isinstance(text, list):
        found = tuple(text)
    elif not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ValueError(f"must be a text of at most {MAX_LENGTH} characters: {_FORMS}")
    else:
        found = tuple(_list(_parsed(text), {}))
    if not all(isinstance(one, (bool, int, float, str)) for one in found):
        raise ValueError("a value is no number, text, true or false")
    if not found:
        raise ValueError("lists no value")
    return tuple(dict.fromkeys(found))


def _parsed(text: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"{_shown(text)} is not {_FORMS}") from None
    _check_depth(tree)
    return tree


def _check_depth(tree: ast.AST) -> None:
    level = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ValueError("is nested too deeply")


def _list(node: ast.expr, names: Mapping[str, _Number]) -> list[TunableValue]:
    """The values of a list, a range, a comprehension, or a sum of them."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_element(child, names) for child in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _limited([*_list(node.left, names), *_list(node.right, names)])
    if isinstance(node, ast.ListComp):
        return _comprehension(node, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "list" and len(node.args) == 1:
            return _list(node.args[0], names)
        if node.func.id == "range" and 1 <= len(node.args) <= 3:  # noqa: PLR2004 - start, stop, step
            return list(_range([_number(child, names) for child in node.args]))
    raise _refused(node)


def _comprehension(node: ast.ListComp, names: Mapping[str, _Number]) -> list[TunableValue]:
    if len(node.generators) != 1:
        raise ValueError("has more than one loop in a comprehension")
    loop = node.generators[0]
    if not isinstance(loop.target, ast.Name) or loop.is_async:
        raise _refused(loop.target)
    values: list[TunableValue] = []
    for value in _list(loop.iter, names):
        if isinstance(value, str):
            raise ValueError("loops over texts")  # noqa: TRY004 - of a file
        inner = {**names, loop.target.id: value}
        if all(_condition(condition, inner) for condition in loop.ifs):
            values.append(_element(node.elt, inner))
    return values


def _condition(node: ast.expr, names: Mapping[str, _Number]) -> bool:
    compared: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in compared:
        return compared[type(node.ops[0])](_number(node.left, names), _number(node.comparators[0], names))
    raise _refused(node)


def _element(node: ast.expr, names: Mapping[str, _Number]) -> TunableValue:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, str)):
        return node.value
    return _number(node, names)


def _number(node: ast.expr, names: Mapping[str, _Number]) -> _Number:
    value: Any
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
    elif isinstance(node, ast.Name) and node.id in names:
        value = names[node.id]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _number(node.operand, names) * (-1 if isinstance(node.op, ast.USub) else 1)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value = _operated(node, names)
    else:
        raise _refused(node)
    if isinstance(value, complex) or not abs(value) < _MAX_NUMBER:
        raise ValueError(f"{_shown(ast.unparse(node))} is no number below 2**63")
    number: _Number = value
    return number


def _operated(node: ast.BinOp, names: Mapping[str, _Number]) -> Any:  # noqa: ANN401 - the caller looks at it
    left, right = _number(node.left, names), _number(node.right, names)
    if isinstance(node.op, ast.Pow) and abs(right) > _MAX_POWER:
        raise ValueError(f"{_shown(ast.unparse(node))}: an exponent is at most {_MAX_POWER}")
    try:
        return _OPERATIONS[type(node.op)](left, right)
    except ArithmeticError as error:
        raise ValueError(f"{_shown(ast.unparse(node))}: {error}") from None


def _range(bounds: list[_Number]) -> range:
    if not all(isinstance(bound, int) for bound in bounds) or bounds[2:] == [0]:
        raise ValueError("a range has whole bounds and a step other than 0")
    values = range(*map(int, bounds))
    if values[MAX_VALUES:]:  # its length may be more than len() can tell
        raise ValueError(f"lists more than {MAX_VALUES} values")
    return values


def _limited(values: list[TunableValue]) -> list[TunableValue]:
    if len(values) > MAX_VALUES:
        raise ValueError(f"lists {len(values)} values, at most {MAX_VALUES} are allowed")
    return values


def _refused(node: ast.AST) -> ValueError:
    return ValueError(f"{_shown(ast.unparse(node))} is not allowed here; write {_FORMS}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")  # noqa: PLR2004 - characters of a line


# --- Kernel Launcher's wisdom files: a line of JSON per configuration, selected by device and problem size.

KEPT = 5  # configurations per run, as Kernel Launcher's own writer keeps
_AXES = 3


def wisdom(runs: Sequence[ExportedRun]) -> str:
    """The text of a wisdom file; joules are comments, as its readers know times only.

    Raises:
        InputError: the runs are of several kernels or co-running, or nothing valid was measured.
    """
    kernels = list(dict.fromkeys(run.kernels for run in runs))
    if len(kernels) > 1 or len(kernels[0]) > 1:
        names_listed = ", ".join(dict.fromkeys(name for names in kernels for name in names))
        raise InputError(f"a wisdom file is of one kernel; these runs are of {names_listed}")
    if len(timings := {run.timing for run in runs}) > 1:
        raise InputError(
            f"a wisdom file has times of one kind; these runs have {' and '.join(sorted(timings))}"
        )
    names = list(dict.fromkeys(name for run in runs for name in run.parameter_names()))
    head = {"version": "1.0", "objective": "time", "tunable_parameters": names, "key": kernels[0][0]}
    lines = [json.dumps(head)]
    for run in runs:
        lines += _lines(run, names)
    return "\n".join(lines) + "\n"


def _lines(run: ExportedRun, names: Sequence[str]) -> list[str]:
    trials = [*run.trials, *([] if run.best is None or run.trials else [run.best])]
    valid = sorted((trial.time_s, i) for i, trial in enumerate(trials) if trial.time_s is not None)
    if not valid:
        raise InputError(
            f"{' + '.join(run.workloads)}: no trial has a valid time, so there is nothing to export"
        )
    lines: list[str] = []
    if run.objective != "time":
        lines.append(f"# tuned for {run.objective}; the lines below are the fastest")
        if run.best is not None and run.best.energy_j is not None:
            best = comment_text(str(run.best.configurations[0]))
            lines.append(f"# for {run.objective}: {best}, {run.best.energy_j:.6g} J")
    for time_s, i in valid[:KEPT]:
        values = run.parameters(trials[i])
        if set(values) != set(names):
            comment = (
                f"# left out, without {', '.join(set(names) - set(values))}: {trials[i].configurations[0]}"
            )
            lines.append(comment_text(comment))
            continue
        if trials[i].energy_j is not None:
            lines.append(f"# {trials[i].energy_j:.6g} J (+- {1.96 * trials[i].energy_uncertainty_j:.2g} J)")
        row = {
            "config": [values[name] for name in names],
            "problem_size": list(run.problem_size[:_AXES]) or [1],
            "time": milliseconds(time_s),
            "environment": {"device_name": run.device, "tuner": VERSION},
        }
        lines.append(json.dumps(row))
    return lines


# --- What frameworks read: fused-MoE files of vLLM and SGLang by numbers of tokens, and ``triton.Config``.

_MOE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
_USUAL = {("num_ctas", 1), ("maxnreg", 0), ("enable_fp_fusion", True), ("SPLIT_K", 1)}  # as if not stated
_LAUNCHED = ("num_ctas", "maxnreg", "enable_fp_fusion")  # what Triton is told beside those of _MOE
_PASSED = {"vllm": (*_MOE, *_LAUNCHED), "sglang": (*_MOE, *_LAUNCHED, "USE_TMA")}
_UNSTATED = ("float16", "bfloat16")  # types that file names leave out
_COUNT = re.compile(r"[1-9][0-9]{0,17}")


class MoeFile(NamedTuple):
    """A fused-MoE file.

    Attributes:
        name: that the framework looks for; empty where it is not known.
        note: the name, or why it is not known, in words.
        rows: by number of tokens the values, and whose they are.
    """

    name: str
    note: str
    rows: dict[int, tuple[dict[str, TunableValue], str]]

    def text(self) -> str:
        """The JSON."""
        values = {str(tokens): self.rows[tokens][0] for tokens in sorted(self.rows)}
        return json.dumps(values, indent=4, allow_nan=False) + "\n"


def moe_files(runs: Sequence[ExportedRun], framework: str) -> list[MoeFile]:
    """The fused-MoE files of runs: one for each GPU, and for each choice of sizes but the number of tokens.

    Args:
        runs: sizes that are called E, N, dtype, block_n and block_k make the names of the files. The number
            of tokens is the size M; without one, the only size in which the workloads differ.
        framework: ``vllm`` or ``sglang``.

    Raises:
        InputError: a run has no answer, no number of tokens or not the values of the framework's kernel, or
            two runs have different answers for one number.
    """
    answers = [
        (name, dict(sizes), run.device, _moe_row(name, build, values, framework))
        for run in runs
        for name, sizes, build, values in zip(
            run.workloads, run.sizes, run.builds(), run.answer().configurations, strict=True
        )
    ]
    named = {size for _, sizes, _, _ in answers for size in sizes}
    differ = [size for size in named if len({sizes.get(size) for _, sizes, _, _ in answers}) > 1]
    files: dict[object, MoeFile] = {}
    for name, sizes, device, row in answers:
        counting = "M" if "M" in sizes or len(differ) != 1 else differ[0]
        tokens = sizes.pop(counting, "")
        if not _COUNT.fullmatch(tokens):
            raise InputError(
                f"{name}: its number of tokens is not known; the size M is, or the one that differs"
            )
        try:
            file = _moe_name(sizes, device, framework)
            note = f"{framework} looks for {file}"
        except InputError as error:
            file, note = "", f"the name of the file is not known: {error}"
        key = file or (device, *sorted(sizes.items()))
        rows = files.setdefault(key, MoeFile(file, note, {})).rows
        first, whose = rows.setdefault(int(tokens), (row, f"{name} on {device}"))
        if first != row:
            raise InputError(f"{tokens} tokens have two answers, {whose}: {first}, {name} on {device}: {row}")
    return list(files.values())


def _moe_row(
    name: str, build: Build, configuration: Configuration, framework: str
) -> dict[str, TunableValue]:
    """The values that a framework passes to its kernel, every one of which the kernel must know."""
    known = _PASSED[framework]
    stated = {key: value for key, value in (build.config or {}).items() if key in known}
    values = {**without_place(configuration), **stated}
    values = {key: value for key, value in values.items() if (key, value) not in _USUAL}
    if missing := [key for key in _MOE if key not in values]:
        raise InputError(
            f"{name}: {framework} needs {', '.join(missing)}, which the kernel has neither as tunables nor as"
            f" options; it has {', '.join(values) or 'none'}"
        )
    for key, value in values.items():
        if key not in known:
            raise InputError(f"{name}: the kernel of {framework} takes no {key}")
        if not isinstance(value, int):
            raise InputError(f"{name}: {key} is {value!r}; {framework} takes whole numbers")
    return {key: values[key] for key in known if key in values}


def _moe_name(sizes: Mapping[str, str], device: str, framework: str) -> str:
    """The name of a fused-MoE file."""
    missing = [key for key in ("E", "N") if not _COUNT.fullmatch(sizes.get(key, ""))]
    if missing:
        raise InputError(f"no size is called {' or '.join(missing)}")
    word = re.sub(r"[\s/]+", "_", device) if framework == "vllm" else device.replace(" ", "_")
    if not re.fullmatch(r"[\w.()+-]+", word, re.ASCII) or "(modelled)" in word:
        raise InputError(f"{device!r} is no GPU that {framework} runs on")
    if framework == "vllm" and "H200" in word.split("_"):
        word = "NVIDIA_H200"  # of the whole family
    dtype, block = sizes.get("dtype", ""), [sizes.get("block_n", ""), sizes.get("block_k", "")]
    dtype = "" if dtype in _UNSTATED else dtype
    if not re.fullmatch(r"\w*", dtype, re.ASCII):
        raise InputError(f"dtype {dtype!r} is no name of a type")
    parts = [
        f"E={sizes['E']},N={sizes['N']},device_name={word}",
        *([f"dtype={dtype}"] if dtype else []),
    ]
    if all(map(_COUNT.fullmatch, block)):
        parts.append(f"block_shape=[{(',' if framework == 'vllm' else ', ').join(block)}]")
    return f"{','.join(parts)}.json"


def triton_configs(runs: Sequence[ExportedRun]) -> str:
    """A Python module whose ``configs`` are the answers, each once, for ``triton.autotune``.

    Raises:
        InputError: a run has no answer, or they are not of one function of Triton.
    """
    of: dict[str, list[str]] = {}
    entries: dict[tuple[str, ...], None] = {}
    for run in runs:
        for name, build in zip(run.workloads, run.builds(), strict=True):
            if build.config is None:
                raise InputError(
                    f"{name}: is not known to launch one function of Triton; where it does, --kernel names"
                    " its file, which has to be as it was tuned"
                )
            entries[build.entries] = None
            of.setdefault(build.triton_config(), []).append(f"{name} on {run.device} for {run.goal}")
    if len(entries) > 1:
        launched = ", ".join(map(" + ".join, entries))
        raise InputError(f"a list of triton.Config is of one function; these runs launch {launched}")
    lines = [
        line
        for config, whose in of.items()
        for line in (*(f"# {comment_text(w)}" for w in whose), f"{config},")
    ]
    types = "import triton.language as tl\n" if any("tl." in config for config in of) else ""
    listed = "".join(f"    {line}\n" for line in lines)
    return f"# Written by tuner {VERSION}.\nimport triton\n{types}\nconfigs = [\n{listed}]\n"
