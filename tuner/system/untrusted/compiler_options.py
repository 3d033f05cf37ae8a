"""The options of NVRTC that a kernel may have: those known to do nothing but change the code.

Others write files (``--create-pch``, ``--time``, ``--fdevice-time-trace``, some of ptxas), read files or hand
texts to other programs. An option that is not listed is refused, as a newer NVRTC may know it. The lists are
those of https://docs.nvidia.com/cuda/nvrtc (supported compile options) and of ptxas. Compile children check,
too, and import this module: it has to stay small.
"""

import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from tuner.model.errors import InputError, suggestion
from tuner.system.untrusted.reading import OPTION_CHARACTERS, OPTIONS

_Accepts = Callable[[str], bool]
_STANDARDS = ("c++03", "c++11", "c++14", "c++17", "c++20", "c++23")


def _matches(pattern: str) -> _Accepts:
    whole = re.compile(pattern)
    return lambda value: whole.fullmatch(value) is not None


_SWITCH = _matches("(?:true|false)?")  # alone, or with a value
_TRUTH = _matches("true|false")
_NUMBER = _matches("[0-9]{1,10}")
_NUMBERS = _matches(r"[0-9]+(?:,[0-9]+)*")
_WORD = _matches("[A-Za-z0-9_.+-]{1,64}")
_MACRO = _matches(r"[A-Za-z_]\w*(?:\([\w, .]*\))?(?:=[^\0\n\r]*)?")
_NAME = _matches(r"[A-Za-z_]\w*")

_SWITCHES = (
    *("device-c", "dc", "device-w", "dw", "extensible-whole-program", "ewp", "device-debug", "G"),
    *("generate-line-info", "lineinfo", "extra-device-vectorization", "disable-warnings", "w", "restrict"),
    *("device-as-default-execution-space", "default-device", "device-int128", "device-float128", "minimal"),
    *("display-error-number", "err-no", "no-display-error-number", "no-err-no", "brief-diagnostics"),
    *("brief-diag", "use_fast_math", "no-source-include", "no-cache", "disable-optimizations"),
    *("warning-as-error", "Werror"),
    *("device-stack-protector", "fassociative-math", "dont-merge-basicblocks"),
)
_KNOWN: dict[str, _Accepts] = {
    **dict.fromkeys(_SWITCHES, _SWITCH),
    **dict.fromkeys(("relocatable-device-code", "rdc", "ftz", "prec-sqrt", "prec-div", "fmad"), _TRUTH),
    **dict.fromkeys(("modify-stack-limit", "builtin-move-forward", "builtin-initializer-list"), _TRUTH),
    **dict.fromkeys(("maxrregcount", "jump-table-density", "jtd", "split-compile"), _NUMBER),
    **dict.fromkeys(("dopt", "optimization-info", "opt-info", "frandom-seed"), _WORD),
    **dict.fromkeys(("Ofast-compile", "Ofc"), _matches("0|min|mid|max")),
    "std": _STANDARDS.__contains__,
    **dict.fromkeys(("diag-error", "diag-suppress", "diag-warn"), _NUMBERS),
    **dict.fromkeys(("define-macro", "D"), _MACRO),
    **dict.fromkeys(("undefine-macro", "U"), _NAME),
}
_INCLUDES = ("include-path", "I")
_PTXAS = ("ptxas-options", "Xptxas")
# The value of these may be the next option.
_TAKE_A_WORD = {"define-macro", "D", "undefine-macro", "U", "maxrregcount", *_INCLUDES, *_PTXAS}
_ARCHITECTURE = ("gpu-architecture", "arch")
_REAL_ARCHITECTURE = _matches(r"sm_[0-9]{2,3}[af]?")

_PTXAS_SWITCHES = (
    *("verbose", "v", "warn-on-spills", "warn-spills", "warn-on-local-memory-usage", "warn-lmem-usage"),
    *("warn-on-double-precision-use", "warn-double-usage", "warning-as-error", "Werror"),
    *("disable-warnings", "w"),
    *("suppress-stack-size-warning", "suppress-double-demote-warning", "disable-optimizer-constants"),
    *("disable-optimizer-consts", "position-independent-code", "pic", "device-debug", "g", "lineinfo"),
    *("generate-line-info", "sp-bounds-check", "return-at-end", "extensible-whole-program", "ewp"),
    *("compile-only", "c", "device-stack-protector", "override-directive-values", "preserve-relocs"),
)
_CACHES = ("def-load-cache", "dlcm", "def-store-cache", "dscm", "force-load-cache", "flcm")
_STORES = ("force-store-cache", "fscm")
_KNOWN_PTXAS: dict[str, _Accepts] = {
    **dict.fromkeys(_PTXAS_SWITCHES, _SWITCH),
    **dict.fromkeys(("opt-level", "O"), _matches("[0-4]")),
    **dict.fromkeys((*_CACHES, *_STORES), _matches("c[agvswbto]|wb|wt")),
    **dict.fromkeys(("maxrregcount", "minnctapersm", "split-compile"), _NUMBER),
    "maxntid": _NUMBERS,
    **dict.fromkeys(("fmad", "allow-expensive-optimizations"), _TRUTH),
    **dict.fromkeys(("Ofast-compile", "Ofc"), _matches("0|min|mid|max")),
}

_WRITES = "writes a file; no option of a kernel may"
_READS = "reads a file that nobody has looked at; #include it in the source"
_PCH = "precompiled headers are files that it would write or load"
_REASONS = {
    **dict.fromkeys(("pch", "create-pch", "use-pch", "pch-dir", "pch-verbose", "pch-messages"), _PCH),
    **dict.fromkeys(("create_pch", "use_pch", "pch_dir", "instantiate-templates-in-pch"), _PCH),
    **dict.fromkeys(("time", "fdevice-time-trace", "device-time-trace", "dump", "keep", "keep-dir"), _WRITES),
    **dict.fromkeys(("output-file", "o", "compiler-stats-file", "compiler-stats", "export-table"), _WRITES),
    **dict.fromkeys(("pre-include", "include", "preinclude"), _READS),
    **dict.fromkeys(("options-file", "optf"), "reads options from a file; write them here"),
    **dict.fromkeys(
        ("Xcudafe", "Xnvvm", "nvvm-options", "Xcompiler", "Xlinker", "Xfatbin"),
        ("hands a text to a part of the compiler that would write or read files for some of them"),
    ),
    **dict.fromkeys(
        ("dlink-time-opt", "dlto", "gen-opt-lto", "optix-ir", "fdevice-syntax-only"),
        ("makes no code that a GPU can load"),
    ),
    **dict.fromkeys(
        (*_ARCHITECTURE, "gencode", "generate-code", "code", "gpu-code"),
        ("the architecture is that of the device; leave it out"),
    ),
}
_O_LEVEL = re.compile("O[0-9sg]?|optimize")


class RefusedOptionError(InputError):
    """An option of a kernel that the compiler is not given."""


def check_options(options: Sequence[str], folders: Collection[str] = (), *, own: bool = False) -> None:
    """Refuse options that are not known to do nothing but change the code.

    Args:
        options: as NVRTC gets them; the value of some may be the next one.
        folders: absolute folders of headers; ``-I`` may name these and what is below them.
        own: these are followed or preceded by the compiler's own: an architecture is allowed.

    Raises:
        RefusedOptionError: one is not allowed; the message names it and what is.
    """
    _checked(tuple(options), tuple(folders), own)


def ptxas_options(options: Sequence[str]) -> list[str]:
    """The options of ptxas among checked options of which all have to be that: ``-O3`` of ``-Xptxas=-O3``.

    Raises:
        RefusedOptionError: one is for another part of the compiler.
    """
    inner = []
    for quoted, name, value in _split(options):
        if name not in _PTXAS or value is None:
            raise RefusedOptionError(
                f"option {quoted}: PTX takes options of ptxas alone: --ptxas-options=-O2"
            )
        inner.append(value)
    return inner


def check_name_expression(text: str) -> None:
    """Refuse an entry or a symbol of several lines: NVRTC compiles it as a line of the source.

    Raises:
        RefusedOptionError: it has control characters, or is too long.
    """
    if len(text) > OPTION_CHARACTERS:
        raise RefusedOptionError(f"{_quoted(text)} has more than {OPTION_CHARACTERS} characters")
    if not text.isprintable():
        raise RefusedOptionError(f"{_quoted(text)} has a line break or another control character in it")


@functools.lru_cache(maxsize=4096)  # the configurations of a space have few different ones
def _checked(options: tuple[str, ...], folders: tuple[str, ...], own: bool) -> None:
    if len(options) > OPTIONS:
        raise RefusedOptionError(f"{len(options)} options; a kernel has at most {OPTIONS}")
    for quoted, name, value in _split(options):
        if name in _INCLUDES:
            _check_folder(quoted, value, folders)
        elif name in _PTXAS:
            _check_ptxas(quoted, value)
        elif own and name in _ARCHITECTURE and _REAL_ARCHITECTURE(value or ""):
            continue
        else:
            _check_known(quoted, name, value, _KNOWN)


def _split(options: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    """(as messages show it, name without dashes, value or None) of each option."""
    rest = iter(options)
    for option in rest:
        quoted = _quoted(option)
        if len(option) > OPTION_CHARACTERS:
            raise RefusedOptionError(f"option {quoted} has more than {OPTION_CHARACTERS} characters")
        if any(character in option for character in "\0\n\r"):
            raise RefusedOptionError(f"option {quoted} has a line break or a NUL in it; leave it out")
        if not option.startswith("-") or option.strip("-") == "":
            raise RefusedOptionError(
                f"option {quoted} does not begin with -; write an option and its value as one text: -DN=4"
            )
        short = option.startswith(("-D", "-U", "-I"))
        if short:
            name, value, stated = option[1], option[2:].removeprefix("=").strip(), len(option) > 2  # noqa: PLR2004
        else:
            name, equals, value = option.removeprefix("-").removeprefix("-").partition("=")
            stated = bool(equals)
        if not stated and name in _TAKE_A_WORD:
            value = next(rest, "")
            quoted = _quoted(f"{option} {value}")
            if not value or any(character in value for character in "\0\n\r"):
                raise RefusedOptionError(f"option {quoted} lacks its value; write {option}=VALUE")
            stated = True
        yield quoted, name, value if stated else None


def _check_known(quoted: str, name: str, value: str | None, table: dict[str, _Accepts]) -> None:
    accepts = table.get(name)
    if accepts is not None:
        if not accepts(value or ""):
            raise RefusedOptionError(f"option {quoted}: {value or 'no value'!r} is no value that it takes")
        return
    word = name.split(maxsplit=1)[0] if name.strip() else name
    reason = _REASONS.get(name) or _REASONS.get(word)
    if reason is None and _O_LEVEL.fullmatch(name):
        reason = "is an option for code of the host; for the GPU there is --ptxas-options=-O3"
    if reason is None and any(character.isspace() for character in name):
        reason = "holds several words; write each option as a text of its own, and values behind ="
    if reason is None:
        names = sorted(table)
        near = suggestion(name.replace("_", "-"), names) or suggestion(name.replace("-", "_"), names)
        reason = f"is not known to be harmless{near}; known are {_listed(table)}"
    raise RefusedOptionError(f"option {quoted}: {reason}")


def _check_ptxas(quoted: str, value: str | None) -> None:
    text = value or ""
    if not text.startswith("-") or any(character.isspace() or character == "," for character in text):
        raise RefusedOptionError(
            f"option {quoted}: write one option of ptxas in each, with its dash: --ptxas-options=-O2"
        )
    name, equals, inner = text.removeprefix("-").removeprefix("-").partition("=")
    if not equals and re.fullmatch("O[0-9]", name):
        name, inner = "O", name[1:]
    _check_known(quoted, name, inner, _KNOWN_PTXAS)


def _check_folder(quoted: str, value: str | None, folders: Collection[str]) -> None:
    path = value or ""
    inside = path.startswith("/") and any(
        os.path.commonpath([root, os.path.realpath(path)]) == root for root in map(os.path.realpath, folders)
    )
    if not inside:
        raise RefusedOptionError(
            f"option {quoted}: leads out of the folders of this kernel; name the folder in include_paths,"
            " which are looked at for changes"
        )


def _listed(table: dict[str, _Accepts]) -> str:
    names = [f"-{name}" if len(name) == 1 else f"--{name}" for name in table]
    if table is _KNOWN:
        names += ["--include-path", "--ptxas-options"]
    return ", ".join(sorted(names, key=lambda name: name.lstrip("-").lower()))


def _quoted(option: str) -> str:
    return repr(option if len(option) <= 100 else f"{option[:97]}...")  # noqa: PLR2004 - one line
