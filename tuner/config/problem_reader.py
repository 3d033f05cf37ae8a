"""Reads what ``[problem]`` says of right answers: expressions, files, functions, a naive kernel."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.config.argument_recipes import BufferRecipe
from tuner.config.data_files import file_sha256
from tuner.config.problem_schema import ProblemTable
from tuner.expressions.arrays import ArrayExpression
from tuner.expressions.expression import Expression, is_free_name
from tuner.kernel_files.formulas import Place, known_names
from tuner.kernel_files.input_reader import FileRecipe, read_file
from tuner.model.errors import ExpressionError, InputError
from tuner.model.inputs import PythonFunction
from tuner.model.plan import ProblemSpec

ReferenceFiles = dict[tuple[str, str], FileRecipe]


def read_problem(
    at: Callable[[str], Place],
    problem: ProblemTable,
    buffers: Sequence[BufferRecipe],
    fixed: Collection[str],
    folder: Path,
    *,
    values: Mapping[str, Any],
) -> tuple[ProblemSpec, ReferenceFiles]:
    """The problem, and the files of data that its expressions name.

    Args:
        at: makes the place of a key.
        problem: the table.
        buffers: of the kernel.
        fixed: names of the sizes, and ``batch``.
        folder: paths are relative to it.
        values: what arguments passed by value are, by their names; an expression may name them.

    Raises:
        KernelFileError: an output has no expression, a name is unknown, or a file cannot be used.
    """
    files: ReferenceFiles = {}
    written = [b.name for b in buffers if b.role in ("out", "inout")]
    read = [b.name for b in buffers if b.role in ("in", "inout")]
    given = {name: value for name, value in values.items() if name not in {*read, *fixed}}
    reference = {name: _written_out(text, given) for name, text in problem.reference.items()}
    for name, text in reference.items():
        place = at(f"[problem.reference] {name}")
        if name not in written:
            raise place.error(f"no output buffer is called so; choose from {', '.join(written)}")
        files |= {
            file: read_file(place, *file, folder) for file in _check_names(place, text, [*read, *fixed])
        }
    missing = [name for name in written if name not in problem.reference]
    if problem.reference and missing:
        raise at("[problem.reference]").error(f"an expression is missing for {', '.join(missing)}")
    spec = ProblemSpec(
        problem.kind,
        problem.tolerance,
        tuple(reference.items()),
        function=_function(at, problem, folder),
        entry=problem.reference_entry or "",
    )
    return spec, files


_NAME_OR_TEXT = re.compile(r"""("[^"]*"|'[^']*')|(?<![\w.])[A-Za-z_]\w*\b(?!\s*\()""")


def _written_out(text: str, values: Mapping[str, Any]) -> str:
    """An expression with the values of arguments in place of their names, but not in quotes."""
    return _NAME_OR_TEXT.sub(lambda match: f"({values[match[0]]})" if match[0] in values else match[0], text)


def _check_names(place: Place, text: str, known: Collection[str]) -> tuple[tuple[str, str], ...]:
    """The files of an expression, which is one over elements or over whole arrays."""
    expression: Expression | ArrayExpression
    try:
        try:
            expression = Expression(text)
        except ExpressionError:
            expression = ArrayExpression(text)
    except ExpressionError as e:
        words = [name for name in known if not is_free_name(name) and re.search(rf"\b{name}\b", text)]
        hint = f"; {words[0]!r} cannot stand in one: call the argument {words[0]}_" if words else ""
        raise place.error(f"{e}{hint}") from e
    known_names(place, text, expression.names, known)
    return expression.files if isinstance(expression, ArrayExpression) else ()


def _function(at: Callable[[str], Place], problem: ProblemTable, folder: Path) -> PythonFunction | None:
    key = "law" if problem.law else "reference_function"
    text = problem.law or problem.reference_function
    if text is None:
        return None
    file, _, name = text.rpartition(":")
    path = (folder / file).absolute()
    try:
        return PythonFunction(str(path), name, file_sha256(path), problem.reference_arrays)
    except InputError as e:
        raise at(f"[problem] {key}").error(e) from e
