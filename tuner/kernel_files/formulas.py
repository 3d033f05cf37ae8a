"""Expressions and texts of a kernel file with their location, so that errors can name it."""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from tuner.model.errors import ExpressionError, KernelFileError, NoValueError, suggestion
from tuner.model.expressions.callables import Expression
from tuner.model.expressions.operations import NoValue, TroubleError
from tuner.model.expressions.parser import MAX_DEPTH, RESERVED, syntax_tree
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
    functions: dict[str, "NamedFunction"],
) -> dict[str, Formula]:
    """The named expressions of a table, as ``[derived]``; each may use ``allowed`` names and those above it.

    Those with parameters come to ``functions``, which all may call. The value of each call is a named expression,
    too, under a name that no file can have.

    Raises:
        KernelFileError: one is not an expression, uses a name that is not known, or one that is not above it,
            leaves out a parameter, or calls another with too few or too many values.
    """
    formulas: dict[str, Formula] = {}
    below = [signature(key)[0] for key in texts]
    callables = {name for name, key in zip(below, texts, strict=True) if name != key}.union(functions)
    for key, value in texts.items():
        name, parameters = signature(key)
        location, text = at(f"{table} {key}"), str(value)
        calls = bool(callables) and not callables.isdisjoint(_WORD.findall(text))
        names = _names_with_calls(location, text) if calls else _expression(location, text).names
        for other in below:
            if other in names:
                where = "is this name itself" if other == name else "stands below"
                raise location.error(f"expression {text!r}: {other} {where}; a name may use those above it")
        known_names(location, text, names, [*allowed, *formulas, *functions, *parameters])
        unused = [parameter for parameter in parameters if parameter not in names]
        if unused:
            raise location.error(f"expression {text!r}: does not use {', '.join(unused)}; leave it out")
        of_calls = {} if parameters else formulas
        expression = _without_calls(location, text, functions, of_calls) if calls else _expression(location, text)
        if parameters:
            functions[name] = NamedFunction(key, parameters, text)
        else:
            formulas[name] = Formula(location, expression, ())
        below.remove(name)
    return formulas


# --- Derived names with parameters. A call stands for a derived name of its own, which is evaluated once.

_WORD = re.compile(r"[A-Za-z_]\w*")
_JOINT = "·"  # in names of calls and of their values: no file can have such a name
MAX_CALLS = 1000


@dataclass(frozen=True)
class NamedFunction:
    """A derived name with parameters: its key, as ``half(x)``, and its expression."""

    key: str
    parameters: tuple[str, ...]
    text: str


def signature(key: str) -> tuple[str, tuple[str, ...]]:
    """Name and parameters of a key of ``[derived]``; most have none."""
    name, *parameters = _WORD.findall(key)
    return name, tuple(parameters)


def _names_with_calls(location: Location, text: str) -> frozenset[str]:
    try:
        names = {node.id for node in ast.walk(syntax_tree(text)) if isinstance(node, ast.Name)}
    except TroubleError as e:
        raise location.error(f"expression {text!r}: {e}") from None
    return frozenset(names - RESERVED)


def _without_calls(
    location: Location,
    text: str,
    functions: Mapping[str, NamedFunction],
    formulas: dict[str, Formula],
) -> Expression:
    """An expression with names in place of its calls, whose values come to ``formulas``."""
    try:
        return Expression(ast.unparse(_Calls(location, functions, formulas).visit(syntax_tree(text))))
    except RecursionError:
        raise location.error(f"expression {text!r}: nested more than {MAX_DEPTH} levels deep") from None
    except TroubleError as e:
        raise location.error(f"expression {text!r}: {e}") from None
    except ExpressionError as e:
        raise location.error(e) from e


class _Calls(ast.NodeTransformer):
    """Puts names in the place of calls, and of parameters what is given for them."""

    def __init__(
        self,
        location: Location,
        functions: Mapping[str, NamedFunction],
        formulas: dict[str, Formula],
        given: Mapping[str, ast.expr] | None = None,
        depth: int = 0,
    ) -> None:
        self._location = location
        self._functions = functions
        self._formulas = formulas
        self._given = given or {}
        self._depth = depth

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._functions:
            raise TroubleError(f"{node.id} has parameters; write {self._functions[node.id].key}")
        return self._given.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        values = [self.visit(argument) for argument in node.args]
        function = self._functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None:
            return ast.Call(node.func, values, node.keywords)
        if node.keywords or len(values) != len(function.parameters):
            raise TroubleError(f"{ast.unparse(node)}: give one value for each name of {function.key}")
        values = list(map(self._named, function.parameters, values))
        words = [ast.unparse(node.func), *map(ast.unparse, values)]
        name = _JOINT.join(words)
        if name not in self._formulas:
            given = dict(zip(function.parameters, values, strict=True))
            inner = _Calls(self._location, self._functions, self._formulas, given, self._depth + 1)
            self._add(name, inner.visit(syntax_tree(function.text)), f"{words[0]}({', '.join(words[1:])})")
        return ast.Name(name)

    def _named(self, parameter: str, value: ast.expr) -> ast.expr:
        """A value as it stands, if that is a name or a whole number, or the name of what is computed first."""
        if isinstance(value, ast.Name) or (isinstance(value, ast.Constant) and type(value.value) is int):
            return value
        text = ast.unparse(value)
        same = (name for name, formula in self._formulas.items() if formula.expression.text == text)
        name = next(same, None) or f"{parameter}{_JOINT}{len(self._formulas)}"
        if name not in self._formulas:
            self._add(name, value, text)
        return ast.Name(name)

    def _add(self, name: str, tree: ast.expr, shown: str) -> None:
        if len(self._formulas) >= MAX_CALLS or self._depth > MAX_DEPTH:
            raise TroubleError(f"more than {MAX_CALLS} names and calls, or calls in more than {MAX_DEPTH} others")
        location = replace(self._location, key=f"{self._location.key}, of {shown}")
        self._formulas[name] = Formula(location, _expression(location, ast.unparse(tree)), ())


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
        shown = [one for one in allowed if _JOINT not in one]
        listed = f"known here: {', '.join(shown)}" if shown else "no names are known here"
        raise location.error(
            f"expression {text!r}: unknown name {name!r} ({listed}){suggestion(name, shown)}"
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
