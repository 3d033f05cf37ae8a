"""Expressions and texts of a kernel file with their location, so that errors can name it."""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tuner.model.errors import ExpressionError, KernelFileError, NoValueError, suggestion
from tuner.model.expressions.callables import Expression
from tuner.model.expressions.operations import NoValue, TroubleError
from tuner.model.expressions.parser import FUNCTIONS, MAX_DEPTH, RESERVED, syntax_tree
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
    at: Callable[[str], Location],
    table: str,
    texts: Mapping[str, TunableValue],
    allowed: Collection[str],
    functions: "NamedFunctions",
) -> dict[str, Formula]:
    """The named expressions of a table, as ``[derived]``; each may use ``allowed`` names and those above it.

    Those with parameters come to ``functions``, which all may call. Each call is a named expression, too, and
    stands before what it is part of, under a name that no file can have.

    Raises:
        KernelFileError: one is not an expression, uses a name that is not known, or one that is not above it,
            leaves out a parameter, or calls another with too few or too many values.
    """
    formulas: dict[str, Formula] = {}
    calls: tuple[dict[str, Formula], dict[str, str]] = formulas, {}
    checked: tuple[dict[str, Formula], dict[str, str]] = {}, {}  # those in functions, whatever is given
    known = dict.fromkeys([*allowed, *functions])
    below = {signature(key)[0]: None for key in texts}
    callables = {name for name, key in zip(below, texts, strict=True) if name != key}.union(functions)
    for key, value in texts.items():
        name, parameters = signature(key)
        location, text = at(f"{table} {key}"), str(value)
        names = _names(location, text) if callables else _expression(location, text).names
        for other in sorted(below.keys() & names):
            where = "is this name itself" if other == name else "stands below"
            raise location.error(f"expression {text!r}: {other} {where}; a name may use those above it")
        known_names(location, text, names, {**known, **dict.fromkeys(parameters)} if parameters else known)
        unused = [parameter for parameter in parameters if parameter not in names]
        if unused:
            raise location.error(f"expression {text!r}: does not use {', '.join(unused)}; leave it out")
        if callables.isdisjoint(names):
            expression = _expression(location, text)
        else:
            expression = _Calls(location, functions, *(checked if parameters else calls)).expression(text)
        if parameters:
            functions[name] = NamedFunction(key, parameters, text)
        else:
            formulas[name] = Formula(location, expression, ())
        known[name] = below.pop(name)
    return formulas


# --- Derived names with parameters. A call stands for a derived name of its own, which is evaluated once.

_JOINT = "·"  # in names of calls and of their values, before a number
MAX_CALLS = 1000


@dataclass(frozen=True)
class NamedFunction:
    """A derived name with parameters: its key, as ``half(x)``, and its expression."""

    key: str
    parameters: tuple[str, ...]
    text: str


class NamedFunctions(dict[str, NamedFunction]):
    """Those of a file by their names, and how many names their calls took: little text can make very many."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0


def signature(key: str) -> tuple[str, tuple[str, ...]]:
    """Name and parameters of a key of ``[derived]``; most have none."""
    name, *parameters = re.findall(r"\w+", key)
    return name, tuple(parameters)


def _names(location: Location, text: str) -> frozenset[str]:
    """The names in an expression, those of what it calls too."""
    nodes = ast.walk(_tree(location, text))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name)) - RESERVED


def is_call(name: str) -> bool:
    """True if a derived name stands for a call, or for a value of one."""
    return _JOINT in name


def uncalled(functions: Mapping[str, NamedFunction], tables: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The keys of functions that none of the names in some tables is a call of."""
    called = {name.partition(_JOINT)[0] for table in tables for name in filter(is_call, table)}
    return tuple(function.key for name, function in functions.items() if name not in called)


@dataclass(frozen=True)
class _Calls(ast.NodeTransformer):
    """Puts names in the place of calls, whose values come to ``formulas``, and values in that of parameters.

    ``made`` has the names by what they stand for.
    """

    location: Location
    functions: NamedFunctions
    formulas: dict[str, Formula]
    made: dict[str, str]
    given: Mapping[str, ast.expr] = field(default_factory=dict)
    depth: int = 0

    def expression(self, text: str) -> Expression:
        """The expression with a name for each call.

        Raises:
            KernelFileError: a call has too few or too many values, or there are too many calls.
        """
        try:
            return _expression(self.location, ast.unparse(self.visit(_tree(self.location, text))), text)
        except RecursionError:
            raise self.location.error(
                f"expression {text!r:.120}: nested more than {MAX_DEPTH} levels deep"
            ) from None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.functions:
            raise self._form(node, node.id)
        return self.given.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in self.functions:
            return ast.Call(node.func, list(map(self.visit, node.args)), node.keywords)
        function = self.functions[name]
        if len(node.args) != len(function.parameters) or node.keywords:
            raise self._form(node, name)
        if self.depth > MAX_DEPTH:
            raise self.location.error(f"more than {MAX_DEPTH} calls in each other")
        written, within = ast.unparse(node), replace(self, depth=self.depth + 1)
        values = list(map(within.value, function.parameters, node.args))
        call = ast.unparse(ast.Call(node.func, values, []))
        if call not in self.made:
            location = replace(self.location, key=f"{self.location.key}, in {written:.120}")
            given = dict(zip(function.parameters, values, strict=True))
            inner = replace(within, location=location, given=given)
            self._add(name, call, inner.expression(function.text), location)
        return ast.Name(self.made[call])

    def value(self, parameter: str, node: ast.expr) -> ast.expr:
        """A name or a literal as it stands; of anything else a name."""
        written, node = ast.unparse(node), self.visit(node)
        if isinstance(node, ast.Name | ast.Constant):
            return node
        text = ast.unparse(node)
        if text not in self.made:
            self._add(parameter, text, _expression(self.location, text, written), self.location)
        return ast.Name(self.made[text])

    def _form(self, node: ast.expr, name: str) -> KernelFileError:
        return self.location.error(f"{ast.unparse(node):.120} is not of the form {self.functions[name].key}")

    def _add(self, name: str, text: str, expression: Expression, location: Location) -> None:
        self.functions.calls += 1
        if self.functions.calls > MAX_CALLS:
            raise self.location.error(f"the file has more than {MAX_CALLS} calls, with those in other calls")
        self.made[text] = f"{name}{_JOINT}{self.functions.calls}"
        self.formulas[self.made[text]] = Formula(location, expression, ())


def parsed(location: Location, text: str, allowed: Collection[str]) -> Expression:
    """The expression, when it uses no other names than ``allowed``.

    Raises:
        KernelFileError: it does, or is not an expression.
    """
    expression = _expression(location, text)
    known_names(location, text, expression.names, allowed)
    return expression


def _expression(location: Location, text: str, written: str = "") -> Expression:
    try:
        return Expression(text, written)
    except ExpressionError as e:
        raise location.error(e) from e


def _tree(location: Location, text: str) -> ast.expr:
    try:
        return syntax_tree(text)
    except TroubleError as e:
        raise location.error(f"expression {text!r:.120}: {e}") from e


def known_names(location: Location, text: str, names: frozenset[str], allowed: Collection[str]) -> None:
    """Check the names that an expression uses.

    Raises:
        KernelFileError: one is not in ``allowed``.
    """
    for name in sorted(names.difference(allowed)):
        shown = [one for one in allowed if not is_call(one)]
        listed = f"known here: {', '.join(shown)}" if shown else "no names are known here"
        hint = suggestion(name, [*shown, *(FUNCTIONS if f"{name}(" in text else ())])
        raise location.error(f"expression {text!r}: unknown name {name!r} ({listed}){hint}")


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
