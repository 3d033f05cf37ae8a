"""TEMPORARY."""

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

from tuner.config.kernel_file import KernelFile
from tuner.config.reader import _Reader
from tuner.config.recipe import Rule
from tuner.config.schema import KernelDocument


def kernel_of(document, sources, *, label, folder, rules=()):
    folder = Path(tempfile.mkdtemp())
    for n, s in sources.items():
        (folder / n).write_text(s.text)
    document = dict(document)
    document["argument"] = [
        {k: v for k, v in a.items() if k != "input"}
        for a in document["argument"]
        if a.get("role") != "constant"
    ]
    recipe = _Reader(folder / "x.toml", KernelDocument.model_validate(document)).recipe()
    recipe = replace(recipe, rules=(*recipe.rules, *(Rule(r, r.text) for r in rules)))
    return KernelFile(folder / "x.toml", recipe, hashlib.sha256(repr(document).encode()).hexdigest())
