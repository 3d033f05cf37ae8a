"""Errors of kernels that are described in Python, in the words of Python."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tuner.errors import InputError

# The keys of a kernel file that ``Kernel.kernel_file`` writes -> the argument that they come from.
_ARGUMENTS = tuple(
    (re.compile(key), argument)
    for key, argument in (
        (r"\[launch\] (grid|block|shared_bytes|cooperative)\b", r"\1"),
        (r"\[launch\]", "grid or block"),
        (r"\[tunables\] (\w+)", r"tunables: \1"),
        (r"\[tunables\]", "tunables"),
        (r"\[problem\.sizes\] (\w+)", r"sizes: \1"),
        (r"\[problem\.reference\] (\w+)", r"reference: \1"),
        (r"\[problem\.reference\]", "reference"),
        (r"\[problem\] tolerance", "tolerance"),
        (r"\[problem\] law", "check"),
        (r"\[problem\]: law\b", "check:"),
        (r"\[problem\]", "reference and check"),
        (r"\[default\] (\w+)", r"default: \1"),
        (r"\[default\]", "default"),
        (r"\[constraints\] rules, item (\d+)", r"restrictions, expression \1"),
        (r"\[constraints\] rules", "restrictions"),
        (r"taken by \[problem\.sizes\]", "that of a number among the arguments, or one of sizes"),
        (r"\[work\] (\w+)", r"work: \1"),
        (r"\[work\]", "work"),
        (r"\[kernel\] entry", "name"),
        (r"\[kernel\] (options|include_paths)", r"\1"),
    )
)


_ARRAY = re.compile(r"\[\[argument\]\] \d+ \((\w+)\)( (?:value|shape|dtype|input)\b)?")


@contextmanager
def python_words(labels: Collection[str], symbols: Collection[str]) -> Iterator[None]:
    """Have errors about these kernels name the arguments of ``tuner.Kernel`` instead of keys of kernel files.

    Args:
        labels: what messages call the kernels.
        symbols: names of their ``symbols``, which are no arguments.

    Raises:
        InputError: the error, in these words; its class stays.
    """
    try:
        yield
    except InputError as error:
        text = str(error)
        if any(label in text for label in labels):
            for key, argument in _ARGUMENTS:
                text = key.sub(argument, text)
            text = _ARRAY.sub(lambda m: f"{'symbols' if m[1] in symbols else 'arguments'}: {m[1]}", text)
            error.args = (text, *error.args[1:])
        raise
