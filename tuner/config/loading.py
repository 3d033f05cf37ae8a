"""Makes kernels of files, and of documents that are no files."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.expressions.callables import PythonExpression
from tuner.kernel_files.document import parsed_document
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.reader import read_recipe, recipe_of
from tuner.model.plan import Source


def load_kernel_file(path: str | Path) -> KernelFile:
    """Read and validate a kernel file, its sources and headers.

    Raises:
        KernelFileError: it cannot be read or is not a kernel file; the message names the key.
    """
    path = Path(path)
    recipe = read_recipe(path)
    return KernelFile(path, recipe, hashlib.sha256(path.read_bytes()).hexdigest())


def kernel_of(
    document: Mapping[str, Any],
    sources: Mapping[str, Source],
    *,
    label: str,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    restrictions: Sequence[Callable[..., Any]] = (),
    data: Path | None = None,
) -> KernelFile:
    """A kernel that is described by a program instead of a file.

    Args:
        document: what a kernel file of the same kernel says, as a mapping; paths in it are absolute.
        sources: CUDA C++ by the names that the document calls it by.
        label: what messages call the kernel instead of the file.
        functions: further derived names: functions of a configuration, see ``PythonExpression``.
        restrictions: functions that are true for the configurations that may be tried.
        data: folder of the files that the document names; not part of the fingerprint, as their content is.

    Raises:
        KernelFileError: a key is wrong.
        InputError: a function has a parameter that is no size, tunable or derived name.
    """
    path = Path(label)
    recipe = recipe_of(path, parsed_document(path, document), sources, functions or {}, restrictions)
    text = json.dumps(document, sort_keys=True, default=str)
    digest = hashlib.sha256((text if data is None else text.replace(str(data), "")).encode())
    expressions = [*(rule.expression for rule in recipe.rules)]
    expressions += [recipe.derived[name].expression for name in functions or {}]
    for expression in expressions:
        if isinstance(expression, PythonExpression):
            digest.update(f"{expression.text}\0{expression.digest}\0".encode())
    return KernelFile(path, recipe, digest.hexdigest())
