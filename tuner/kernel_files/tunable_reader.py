"""Reads tunables: value lists, conditions, roles and the default; those of [variant] tables too."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from tuner.kernel_files.formulas import Formula, Location, parsed
from tuner.kernel_files.recipe import ConditionRecipe
from tuner.kernel_files.schema import KernelDocument, TunableTable
from tuner.model.errors import EmptySpaceError, InputError, suggestion
from tuner.model.expressions.callables import Expression
from tuner.model.plan import TunableValue
from tuner.space.space import Space, checked_values

MAX_TRIED = 2**16  # combinations of values for which a condition is tried before any size is known
_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")


@dataclass(frozen=True)
class Declaration:
    """One tunable as the file declares it.

    Attributes:
        table: where it stands, e.g. ``variant.ring.tunables``.
        conditions: key and text of each condition that holds for it: its table's, then its own.
        otherwise: what stands for it where one is false; None where nothing does.
    """

    name: str
    table: str
    values: tuple[TunableValue, ...]
    conditions: tuple[tuple[str, str], ...]
    otherwise: TunableValue | None


def declarations(document: KernelDocument, at: Callable[[str], Location]) -> dict[str, Declaration]:
    """The tunables of a document in the order of its tables.

    Raises:
        KernelFileError: a value list makes no axis of a space, or a name stands twice.
    """
    by_name: dict[str, Declaration] = {}
    for declaration in _declared(document, at):
        if declaration.name in by_name:
            raise at(f"[{declaration.table}] {declaration.name}").error(
                f"the name is taken by [{by_name[declaration.name].table}]; choose another"
            )
        by_name[declaration.name] = declaration
    if not by_name:
        raise at("[tunables]").error("holds no tunable, and no [variant] table does")
    return by_name


def _declared(document: KernelDocument, at: Callable[[str], Location]) -> Iterator[Declaration]:
    tables = [("tunables", document.tunables, ())] + [
        (f"variant.{name}.tunables", variant.tunables, ((f"[variant.{name}] when", variant.when),))
        for name, variant in document.variant.items()
    ]
    for table, tunables, conditions in tables:
        for name, tunable in tunables.items():
            table_form = tunable if isinstance(tunable, TunableTable) else TunableTable(values=tunable)
            own = () if table_form.when is None else ((f"[{table}.{name}] when", str(table_form.when)),)
            location = (
                at(f"[{table}]") if table_form.permutation is None else at(f"[{table}.{name}] permutation")
            )
            try:
                values = checked_values(name, table_form.values or orders(table_form.permutation or ()))
            except InputError as e:
                raise location.error(e) from e
            yield Declaration(name, table, values, (*conditions, *own), table_form.otherwise)


def orders(items: Sequence[int | str]) -> list[str]:
    """Every order of some items as a text with commas between them, the given order first.

    Raises:
        InputError: an item stands twice, or cannot be told apart in such a text.
    """
    texts = [str(item) for item in items]
    for text in texts:
        if texts.count(text) > 1:
            raise InputError(f"the item {text!r} stands twice; items must differ")
        if not text.strip() or "," in text:
            raise InputError(f"the item {text!r} is empty or has a comma; commas stand between items")
    return [",".join(order) for order in permutations(texts)]


class TunableReader:
    """Parses the declarations of tunables."""

    def __init__(
        self,
        at: Callable[[str], Location],
        declared: Mapping[str, Declaration],
        fixed: list[str],
        derived: Mapping[str, Formula],
    ) -> None:
        self.at = at
        self.declared = declared
        self.fixed = fixed
        self.derived = derived
        self.order = list(declared)
        self.conditions = {}
        for name, declaration in declared.items():
            if declaration.conditions:
                self.conditions[name] = self._condition(declaration)
            elif declaration.otherwise is not None:
                raise at(f"[{declaration.table}.{name}] otherwise").error(
                    f"{name} always has a value; give its condition as when, too"
                )
        for name, declaration in declared.items():
            if declaration.conditions:
                self._check_possible(name)

    def _condition(self, declaration: Declaration) -> ConditionRecipe:
        allowed = [*self.fixed, *self.order, *self.derived]
        for key, text in declaration.conditions:
            self._check_above(declaration.name, self.at(key), parsed(self.at(key), text, allowed))
        key, text = declaration.conditions[-1]
        if len(declaration.conditions) > 1:
            text = " and ".join(f"({each})" for _, each in declaration.conditions)
        when = Formula(self.at(key), text, allowed)
        needed = self._through_derived(when.expression)
        derived = {name: formula for name, formula in self.derived.items() if name in needed}
        return ConditionRecipe(when, self._otherwise(declaration), derived)

    def _otherwise(self, declaration: Declaration) -> Formula | None:
        if declaration.otherwise is None:
            return None
        location = self.at(f"[{declaration.table}.{declaration.name}] otherwise")
        if isinstance(declaration.otherwise, str) and declaration.otherwise in declaration.values:
            return Formula(location, repr(declaration.otherwise), ())
        return Formula(
            location, declaration.otherwise, [*self.fixed, *self.order[: self.order.index(declaration.name)]]
        )

    def _check_above(self, name: str, location: Location, expression: Expression) -> None:
        """A condition takes the tunables above its own, so that no two wait for each other."""
        needed = self._through_derived(expression)
        for other in self.order[self.order.index(name) :]:
            if other not in needed:
                continue
            text = repr(expression.text)
            if other == name:
                raise location.error(f"{text} needs {name} itself, which has a value only where it is true")
            back = [Expression(each) for _, each in self.declared[other].conditions]
            if any(name in self._through_derived(each) for each in back):
                raise location.error(
                    f"{text} needs {other}, whose own condition needs {name}: neither can be first"
                )
            raise location.error(
                f"{text} needs {other}, which is declared below {name}; a condition takes the tunables above"
            )

    def _through_derived(self, expression: Expression) -> set[str]:
        needed = set(expression.names)
        for name, formula in reversed(list(self.derived.items())):
            if name in needed:
                needed |= formula.expression.names
        return needed

    def _check_possible(self, name: str) -> None:
        """A condition over tunables alone is true for some of their values."""
        when = self.conditions[name].when
        needed = self._through_derived(when.expression)
        for other in reversed(self.order):
            if other in needed and other in self.conditions:
                needed |= self._through_derived(self.conditions[other].when.expression)
        lists = {other: declaration.values for other, declaration in self.declared.items() if other in needed}
        combinations = math.prod(map(len, lists.values()))
        if not lists or needed.intersection(self.fixed) or combinations > MAX_TRIED:
            return
        derived = {each: self.derived[each].expression for each in self.derived if each in needed}
        conditions = {each: self.conditions[each].condition for each in lists if each in self.conditions}
        try:
            Space.build(lists, [when.expression], {}, derived, conditions)
        except EmptySpaceError:
            texts = [value for values in lists.values() for value in values if isinstance(value, str)]
            named = ["".join(pair) for pair in _TEXT.findall(when.expression.text)]
            hints = (suggestion(text, texts) for text in named if text not in texts)
            raise when.location.error(
                f"{when} is true for no value of {', '.join(lists)}, so {name} never has one"
                f"{next(filter(None, hints), '')}"
            ) from None
        except InputError:
            return  # it has no result; the enumeration of a workload says for which sizes

    def roles(self, roles: Mapping[str, str]) -> dict[str, str]:
        """Role -> tunable.

        Raises:
            KernelFileError: it is none, or its values are text.
        """
        for role, name in roles.items():
            if name not in self.declared:
                raise self.at(f"[roles] {role}").error(
                    f"{name!r} is no tunable; choose from {', '.join(self.order)}"
                    f"{suggestion(name, self.order)}"
                )
            if any(isinstance(value, str) for value in self.declared[name].values):
                raise self.at(f"[roles] {role}").error(f"the values of {name} are text; a role needs numbers")
        return dict(roles)

    def assigned(self, entries: Mapping[str, TunableValue], table: str) -> dict[str, Formula | str | None]:
        """Tunable -> value or formula, in an order in which they can be found; None where none is given.

        Raises:
            KernelFileError: a tunable is unknown, lacks a value, or stands above one its condition needs.
        """
        for name in entries:
            if name not in self.declared:
                raise self.at(f"{table} {name}").error(
                    f"no such tunable; choose from {', '.join(self.order)}{suggestion(name, self.order)}"
                )
        missing = [name for name in self.order if name not in entries and name not in self.conditions]
        if entries and missing:
            raise self.at(table).error(f"a value is missing for {', '.join(missing)}")
        names = list(self.fixed)
        formulas: dict[str, Formula | str | None] = {}
        for name, value in entries.items():
            location = self.at(f"{table} {name}")
            for other in self._deciding(name):
                if other in entries and other not in formulas:
                    raise location.error(f"its condition needs {other}; give {other} above it")
            self._add_missing(formulas, entries)
            literal = isinstance(value, str) and value in self.declared[name].values
            formulas[name] = str(value) if literal else Formula(location, value, self._with_derived(names))
            names.append(name)
        if entries:
            self._add_missing(formulas, entries)
        return formulas

    def _with_derived(self, names: list[str]) -> list[str]:
        """Names that are known, and derived ones that are made of nothing else."""
        extended = dict.fromkeys(names)
        for name, formula in self.derived.items():
            if formula.expression.names <= extended.keys():
                extended[name] = None
        return list(extended)

    def _add_missing(
        self, default: dict[str, Formula | str | None], entries: Mapping[str, TunableValue]
    ) -> None:
        """Those without a value whose condition can be told by now."""
        for name in self.order:
            if name not in entries and name not in default and self._deciding(name) <= default.keys():
                default[name] = None

    def _deciding(self, name: str) -> set[str]:
        """Tunables that the condition of one needs."""
        if name not in self.conditions:
            return set()
        return self._through_derived(self.conditions[name].when.expression).intersection(self.order)
