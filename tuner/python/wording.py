"""Errors of kernels and options that are given in Python, in the words of Python."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tuner.model.errors import InputError, TunerError
from tuner.model.options import OPTIONS

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


_NAMES = {option.flag.removeprefix("--"): name for name, option in OPTIONS.items()}
_FIRST = re.compile(r"^--(on|device|clocks|sensor|scope) (\S+): ")
_FLAG = re.compile(
    r"`[^`]*`"  # a command, which stays
    r"|--(?P<place>on|device) (?P<value>(?:local|dask|slurm|sim|cuda|replay|kind)\b\S*?)(?=[:,;.)]*(?:\s|$))"
    r"|--(?P<flag>[a-z]+(?:-[a-z]+)*)"
)


@contextmanager
def option_words() -> Iterator[None]:
    """Have errors name the arguments of ``tuner.tune`` instead of the options of ``tuner run``.

    Raises:
        TunerError: the error, in these words; its class stays.
    """
    try:
        yield
    except TunerError as error:
        if error.args and isinstance(error.args[0], str):
            text = _FIRST.sub(lambda m: f"{m[1]}={m[2]!r}: ", error.args[0])
            error.args = (_FLAG.sub(_as_argument, text), *error.args[1:])
        raise


def _as_argument(found: re.Match[str]) -> str:
    """An option as a call has it; a command between backticks as it is."""
    if found["place"]:
        return f"{found['place']}={found['value']!r}"
    flag = found["flag"]
    return _NAMES.get(flag, flag.replace("-", "_")) if flag else found[0]
