"""Names and macros of a kernel file that nothing in its source uses, and guesses that are still marked."""

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath

from tuner.kernel_files.cuda_source.tokens import (
    always_defined,
    defined_macros,
    fixed_constants,
    without_comments,
)
from tuner.kernel_files.formulas import Formula, Template, is_call
from tuner.kernel_files.recipe import Recipe, Rule
from tuner.kernel_files.stage_recipe import StageRecipe
from tuner.model.errors import KernelFileError
from tuner.model.plan import Plan, Source

_MACRO_NAME = re.compile(r"(?:-D|--define-macro=)\s*([A-Za-z_]\w*)")
_CARRIER = "TUNER_"  # begins macros that carry the value of a constant, as pragmas have them
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\b[ \t]*(?:["<]([^">\n]*)[">])?', re.MULTILINE)
_USES_NO_MACRO = re.compile(  # headers of CUDA and of C++
    r"[a-z_]+|c?(?:std\w+|math|float|limits|assert|string)(?:\.h)?|cuda\w*\.h|mma\.h|crt/mma\.h"
    r"|cuda/\w+|cuda/std/\w+|cooperative_groups\.h|cooperative_groups/\w+\.h"
)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if\b([^\n]*)", re.MULTILINE)
_GAP = r"\s*(?:#line[^\n]*\s*)*"
_NO_USE = ("tunables", "conditions", "derived", "roles", "rules", "default", "sizes", "optional", "loops")

_MEANT = (  # problems whose sizes may have a meaning of their own
    "scan",
    "fft",
    "fft-real",
    "fft-columns",
    "fft-2d",
    "fft-convolution",
    "tridiagonal",
)


def unused_names(recipe: Recipe) -> list[str]:
    """A sentence for each size, tunable and derived name that no launch, array, option or entry uses.

    A tunable that only rules, roles or defaults mention changes nothing that is run. Neither does a macro of
    which a source has the definition alone.
    """
    used = set(_names({f.name: getattr(recipe, f.name) for f in fields(recipe) if f.name not in _NO_USE}))
    if recipe.problem.name in _MEANT:
        used |= set(recipe.sizes)
    tables: list[tuple[str, Iterable[str], Collection[str]]] = []
    for key, loop in recipe.loops.items():
        launches = [*recipe.stages, *([] if recipe.reference is None else [recipe.reference])]
        inside = set(_names([stage for stage in launches if stage.loop == key]))
        follow_derived(loop.derived, inside)
        tables.append((f"{loop.location.key[1:-1]}.derived", loop.derived, inside))
        used |= inside.union(loop.repeat.expression.names)
    decided = set(_names([recipe.rules, recipe.default, list(recipe.conditions.values())]))
    for names in (used, decided):
        follow_derived(recipe.derived, names)
    used |= {name for condition in recipe.conditions.values() for name in condition.when.expression.names}
    derived = [*recipe.derived, *recipe.uncalled]
    outside = [("problem.sizes", recipe.sizes), ("tunables", recipe.tunables), ("derived", derived)]
    tables = [*((table, listed, used) for table, listed in outside), *tables]
    return [
        f"[{table}] {name}: nothing uses it: no entry, option, array, value, geometry or macro of the source"
        for table, listed, users in tables
        for name in listed
        if name not in users and (table == "tunables" or name not in decided) and not is_call(name)
    ]


def overridden_macros(recipe: Recipe) -> list[str]:
    """A sentence for each tunable and size that a source defines itself, whatever value it is to have."""
    definitions: dict[str, tuple[str, str]] = {}
    for stage in _of_cuda(recipe):
        path = PurePath(stage.source.path).name
        text = without_comments(stage.source.text)
        passed = {*stage.entry.names, *(name for option in stage.options for name in option.names)}
        constants = fixed_constants(text) & {*recipe.tunables, *recipe.sizes} - passed
        definitions |= dict.fromkeys(sorted(constants), (path, "make it a macro with #define"))
        macros = always_defined(stage.source.text) & {*stage.macros}
        definitions |= dict.fromkeys(sorted(macros), (path, "put its #define"))
    return [
        f"{name}: {path} defines it itself, so that every value compiles to the same code; {remedy}"
        f" between #ifndef {name} and #endif"
        for name, (path, remedy) in definitions.items()
    ]


def _of_cuda(recipe: Recipe) -> list[StageRecipe]:
    return [stage for stage in recipe.stages if isinstance(stage, StageRecipe) and stage.triton is None]


def unset_macros(recipe: Recipe) -> list[str]:
    """A sentence for each tunable and size that an ``#if`` of a source asks for, and is no macro there."""
    sentences: dict[str, None] = {}
    for stage in _of_cuda(recipe):
        options = "\n".join(option.fill({}) for option in stage.options if option.is_plain)
        mentioned = {name for option in stage.options for name in option.names}
        text = without_comments(stage.source.text, keep_strings=False)
        known = {*stage.macros, *_MACRO_NAME.findall(options), *mentioned, *defined_macros(text)}
        for condition in _CONDITION.finditer(text):
            for name in re.findall(r"[A-Za-z_]\w*", re.sub(r"\bdefined\b\W*\w+", "", condition[1])):
                if name in {*recipe.tunables, *recipe.sizes} - known:
                    line = text.count("\n", 0, condition.start()) + 1
                    place = PurePath(stage.source.path).name + ("" if "#line" in text else f", line {line},")
                    sentences[
                        f"{name}: #if of {place} takes it for 0, as it is a template parameter and no macro;"
                        f' options = ["-D{name}_={{{name}}}"] sets a macro {name}_ to its value'
                    ] = None
    return list(sentences)


def unused_macros(plan: Plan) -> list[str]:
    """A sentence for each macro of an option that no source of a plan mentions."""
    sentences: dict[str, None] = {}
    for stage in plan.stages:
        if stage.source.language != "cuda":
            continue
        texts = [stage.source.text, *(text for _, text in stage.source.headers)]
        words = set(re.findall(r"[A-Za-z_]\w*", without_comments("\n".join(texts), keep_strings=False)))
        for name in _MACRO_NAME.findall("\n".join(stage.options)):
            if name not in words:
                sentences[f"[kernel] options: no source uses the macro {name}"] = None
    return list(sentences)


def follow_derived(derived: Mapping[str, Formula], names: set[str]) -> None:
    """Add to names what those of them that are derived are made of."""
    for name, formula in reversed(list(derived.items())):
        if name in names:
            names |= formula.expression.names


@functools.lru_cache(maxsize=128)  # steps of a loop have the same source
def _defined_only(source: Source, names: frozenset[str]) -> frozenset[str]:
    """Those of some names of which a source and its headers have nothing but a guarded definition.

    No names where that is not sure: they may be pasted together, or headers may not be known.
    """
    text = without_comments("\n".join([source.text, *(text for _, text in source.headers)]))
    own_headers = {name for name, _ in source.headers}
    included = [name for name in _INCLUDE.findall(text) if name not in own_headers]
    if "##" in text or not all(_USES_NO_MACRO.fullmatch(name) for name in included):
        return frozenset()
    return frozenset(name for name in names if _is_defined_only(name, text))


def _is_defined_only(name: str, text: str) -> bool:
    rest, guards = _unguarded(name, text)
    if guards:
        return not _count(name, rest)
    carrier = f"{_CARRIER}{name}"
    rest, guards = _unguarded(carrier, text)
    return (
        bool(guards) and _count(carrier, rest) == 1 and _count(name, rest) == 1
    )  # constexpr int A = TUNER_A;


def _unguarded(name: str, text: str) -> tuple[str, int]:
    """A text without ``#ifndef NAME``, ``#define NAME`` and ``#endif``, and how often they stood there."""
    guard = rf"#[ \t]*ifndef[ \t]+{name}\b{_GAP}#[ \t]*define[ \t]+{name}\b([^\n]*){_GAP}#[ \t]*endif\b"
    return re.subn(guard, r"\1", text)


def _count(name: str, text: str) -> int:
    return len(re.findall(rf"\b{name}\b", text))


def _stage_names(stage: StageRecipe) -> Iterator[str]:
    """The names that a launch uses, without those that its source defines and does not use."""
    carried = {option: name for option in stage.options for name in option.names if _carries(option, name)}
    idle = frozenset[str]()
    if stage.triton is None:
        idle = _defined_only(stage.source, frozenset((*stage.macros, *carried.values())))
    yield from (name for name in stage.macros if name not in idle)
    yield from _names([option for option in stage.options if carried.get(option) not in idle])
    for field in fields(stage):
        if field.name not in ("macros", "options"):
            yield from _names(getattr(stage, field.name))


def _carries(option: Template, name: str) -> bool:
    """Return True if an option is ``-DTUNER_NAME={NAME}``."""
    try:
        return len(option.names) == 1 and option.fill({name: 1}) == f"-D{_CARRIER}{name}=1"
    except KernelFileError:  # an expression that has no result for 1
        return False


def _names(value: object) -> Iterator[str]:
    if isinstance(value, (Formula, Rule)):
        yield from value.expression.names
    elif isinstance(value, Template):
        yield from value.names
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _names(inner)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from _names(inner)
    elif isinstance(value, StageRecipe):
        yield from _stage_names(value)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _names(getattr(value, field.name))


# --- Guesses of ``tuner kernels new`` that nobody has looked at.

GUESS = "# GUESS"
"""Marks a line of a kernel file that nobody has looked at."""


def unseen_guesses(file: Path) -> str:
    """A sentence on the lines of a kernel file that are marked as guesses; empty where none is."""
    lines = enumerate(file.read_text(errors="replace").splitlines(), 1) if file.suffix == ".toml" else ()
    marked = [str(place) for place, line in lines if GUESS in line and not line.startswith("#")]
    if not marked:
        return ""
    many = f"{len(marked)} guesses" if len(marked) > 1 else "1 guess"
    return f"{many} not looked at: line{'s' * (len(marked) > 1)} {', '.join(marked)}"
