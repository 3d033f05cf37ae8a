"""Expressions and texts of a kernel file with their location, so that errors can name it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tuner.model.errors import ExpressionError, KernelFileError, NoValueError, suggestion
from tuner.model.expressions.callables import Expression
from tuner.model.expressions.operations import NoValue
from tuner.model.plan import TunableValue

Environment = Mapping[str, TunableValue | NoValue]


@dataclass(frozen=True)
class Location:
    """A key of a kernel file, written as ``FILE: [table] key``."""

    path: str
    key: str

    def error(self, message: object) -> KernelFileError:
        """An error that names file and key."""
        return KernelFileError(f"{self.path}: {self.key}: {message}")


class Formula:
    """A number, or an expression over names that are known where it stands."""

    __slots__ = ("_same", "expression", "location")

    def __init__(
        self, location: Location, value: TunableValue | Expression, allowed: Collection[str]
    ) -> None:
        """Parse ``value``; a number is an expression, too, and one that is parsed already stays.

        Raises:
            KernelFileError: it is not an expression, or uses a name that is not in ``allowed``.
        """
        self.location = location
        self.expression = value if isinstance(value, Expression) else parsed(location, str(value), allowed)
        self._same: TunableValue | None = None  # the value, once it is known, where no name is needed for it

    def value(self, env: Environment) -> TunableValue:
        """The value, of whatever type.

        Raises:
            KernelFileError: the expression has no result.
        """
        if self._same is not None:
            return self._same
        try:
            result: TunableValue = self.expression.evaluate(env)
        except ExpressionError as e:
            raise self.location.error(e) from e
        if type(self.expression) is Expression and not self.expression.names:
            self._same = result
        return result

    def value_or_none(self, env: Environment) -> TunableValue | NoValue:
        """The value; none where the expression comes to a tunable that has none.

        Raises:
            KernelFileError: the expression has no result.
        """
        try:
            result: TunableValue = self.expression.evaluate(env)
        except NoValueError as e:
            return NoValue(str(e))
        except ExpressionError as e:
            raise self.location.error(e) from e
        return result

    def whole(self, env: Environment, least: int, most: int | None = None) -> int:
        """The value as a whole number between bounds.

        Raises:
            KernelFileError: it is something else.
        """
        result = self.value(env)
        if type(result) is not int:
            hint = "; // and ceil_div() divide to whole numbers" if isinstance(result, float) else ""
            raise self.location.error(f"{self} is {_shown(result)}, which is not a whole number{hint}")
        if result < least or (most is not None and result > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise self.location.error(f"{self} is {result}; it must be {bounds}")
        return result

    def number(self, env: Environment, least: float | None = None) -> int | float:
        """The value as a number.

        Raises:
            KernelFileError: it is text or below ``least``.
        """
        result = self.value(env)
        if isinstance(result, str):
            raise self.location.error(f"{self} is the text {result!r}, not a number")
        if least is not None and result < least:
            raise self.location.error(f"{self} is {result}; it must be at least {least:g}")
        return result

    def __str__(self) -> str:
        return repr(self.expression.text)


class Template:
    """Text in which every ``{expression}`` is replaced by its value, booleans by ``true`` or ``false``."""

    __slots__ = ("_parts", "_plain", "location")

    def __init__(self, location: Location, text: str, allowed: Collection[str]) -> None:
        """Split ``text`` and parse the expressions.

        Raises:
            KernelFileError: braces are not in pairs, or what they hold is not an expression.
        """
        self.location = location
        self._parts: list[str | Formula] = []
        rest = text
        while rest:
            literal, opened, rest = rest.partition("{")
            inner, closed, rest = rest.partition("}")
            if "}" in literal or "{" in inner or bool(opened) != bool(closed):
                raise location.error(f"braces of {text!r} are not in pairs, as in name<{{N}}, {{P}}>")
            if literal:
                self._parts.append(literal)
            if opened:
                self._parts.append(Formula(location, inner, allowed))
        self._plain = all(isinstance(part, str) for part in self._parts)

    @property
    def is_plain(self) -> bool:
        """True where the text holds no expression."""
        return self._plain

    @property
    def begin(self) -> str:
        """The text before the first expression."""
        first = self._parts[0] if self._parts else ""
        return first if isinstance(first, str) else ""

    @property
    def names(self) -> frozenset[str]:
        """The names it needs a value for."""
        return frozenset().union(*(p.expression.names for p in self._parts if isinstance(p, Formula)))

    def fill(self, env: Environment) -> str:
        """The text with all values in it.

        Raises:
            KernelFileError: an expression has no result, or gives a fraction.
        """
        return "".join([p if isinstance(p, str) else self._text(p, env) for p in self._parts])

    def _text(self, formula: Formula, env: Environment) -> str:
        value = formula.value(env)
        if isinstance(value, float):
            raise self.location.error(f"{formula} is {value}; // and ceil_div() divide to whole numbers")
        return _shown(value)


def named(
    at: Callable[[str], Location], table: str, texts: Mapping[str, TunableValue], allowed: Collection[str]
) -> dict[str, Formula]:
    """The named expressions of a table, as ``[derived]``; each may use ``allowed`` names and those above it.

    Raises:
        KernelFileError: one is not an expression, uses a name that is not known, or one that is not above it.
    """
    formulas: dict[str, Formula] = {}
    for name, text in texts.items():
        location = at(f"{table} {name}")
        above = [*allowed, *formulas]
        below = [other for other in texts if other not in formulas]
        expression = _expression(location, str(text))
        for other in below:
            if other in expression.names:
                where = "is this name itself" if other == name else "stands below"
                raise location.error(
                    f"expression {str(text)!r}: {other} {where}; a name may use those above it"
                )
        known_names(location, str(text), expression.names, above)
        formulas[name] = Formula(location, expression, above)
    return formulas


def parsed(location: Location, text: str, allowed: Collection[str]) -> Expression:
    """The expression, when it uses no other names than ``allowed``.

    Raises:
        KernelFileError: it does, or is not an expression.
    """
    expression = _expression(location, text)
    known_names(location, text, expression.names, allowed)
    return expression


def _expression(location: Location, text: str) -> Expression:
    try:
        return Expression(text)
    except ExpressionError as e:
        raise location.error(e) from e


def known_names(location: Location, text: str, names: frozenset[str], allowed: Collection[str]) -> None:
    """Check the names that an expression uses.

    Raises:
        KernelFileError: one is not in ``allowed``.
    """
    for name in sorted(names.difference(allowed)):
        listed = f"known here: {', '.join(allowed)}" if allowed else "no names are known here"
        raise location.error(
            f"expression {text!r}: unknown name {name!r} ({listed}){suggestion(name, allowed)}"
        )


def _shown(value: TunableValue) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def derived_for(names: Collection[str], derived: Mapping[str, Formula]) -> dict[str, Formula]:
    """The derived names among some names, and those that these are made of, in their order."""
    needed = set(names)
    for name, formula in reversed(list(derived.items())):
        if name in needed:
            needed |= formula.expression.names
    return {name: formula for name, formula in derived.items() if name in needed}


def with_derived(env: Environment, derived: Mapping[str, Formula]) -> Environment:
    """An environment with derived names; one that comes to a tunable without a value has none itself."""
    values = dict(env)
    for name, formula in derived.items():
        values[name] = formula.value_or_none(values)
    return values
