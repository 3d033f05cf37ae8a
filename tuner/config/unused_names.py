"""Names and macros of a kernel file that nothing uses."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath

from tuner.config.formulas import Formula, Template
from tuner.config.recipe import Recipe, Rule
from tuner.cuda_source.tokens import always_defined, without_comments
from tuner.model import Plan

_MACRO = re.compile(r"(?:-D|--define-macro=)\s*([A-Za-z_]\w*)")
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

    A tunable that only rules, roles or defaults mention changes nothing that is run.
    """
    used = set(_names({f.name: getattr(recipe, f.name) for f in fields(recipe) if f.name not in _NO_USE}))
    if recipe.problem.name in _MEANT:
        used |= set(recipe.sizes)
    tables: list[tuple[str, Iterable[str], Collection[str]]] = []
    for key, loop in recipe.loops.items():
        launches = [*recipe.stages, *([] if recipe.reference is None else [recipe.reference])]
        inside = set(_names([stage for stage in launches if stage.loop == key]))
        _follow(loop.derived, inside)
        tables.append((f"{loop.place.key[1:-1]}.derived", loop.derived, inside))
        used |= inside.union(loop.repeat.expression.names)
    decided = set(_names([recipe.rules, recipe.default, list(recipe.conditions.values())]))
    for names in (used, decided):
        _follow(recipe.derived, names)
    used |= {name for condition in recipe.conditions.values() for name in condition.when.expression.names}
    outside = [("problem.sizes", recipe.sizes), ("tunables", recipe.tunables), ("derived", recipe.derived)]
    tables = [*((table, listed, used) for table, listed in outside), *tables]
    return [
        f"[{table}] {name}: nothing uses it: no entry, option, array, value, geometry or macro of the source"
        for table, listed, users in tables
        for name in listed
        if name not in users and (table == "tunables" or name not in decided)
    ]


def overridden_macros(recipe: Recipe) -> list[str]:
    """A sentence for each tunable and size that a source defines itself, whatever value it is to have."""
    found = {
        name: PurePath(stage.source.path).name
        for stage in recipe.stages
        for name in getattr(stage, "macros", ())
        if name in always_defined(stage.source.text)
    }
    return [
        f"{name}: {path} defines it itself, so that every value compiles to the same code; put its"
        f" #define between #ifndef {name} and #endif"
        for name, path in found.items()
    ]


def unused_macros(plan: Plan) -> list[str]:
    """A sentence for each macro of an option that no source of a plan mentions."""
    found: dict[str, None] = {}
    for stage in plan.stages:
        if stage.source is None:
            continue
        texts = [stage.source.text, *(text for _, text in stage.source.headers)]
        words = set(re.findall(r"[A-Za-z_]\w*", without_comments("\n".join(texts), keep_strings=False)))
        for name in _MACRO.findall("\n".join(stage.options)):
            if name not in words:
                found[f"[kernel] options: no source uses the macro {name}"] = None
    return list(found)


def _follow(derived: Mapping[str, Formula], names: set[str]) -> None:
    """Add to names what those of them that are derived are made of."""
    for name, formula in reversed(list(derived.items())):
        if name in names:
            names |= formula.expression.names


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
    elif is_dataclass(value):
        yield from (getattr(value, "macros", None) or ())
        for field in fields(value):
            yield from _names(getattr(value, field.name))
