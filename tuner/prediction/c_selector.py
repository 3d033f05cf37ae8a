"""A C header that picks a version of a kernel by the problem sizes: the tree, its conditions, and macros."""

import ast
import itertools
import math
import re
import string
from collections.abc import Collection, Mapping, Sequence

from tuner.model.errors import InputError
from tuner.model.expressions.array_expressions import reduced
from tuner.model.expressions.callables import Expression
from tuner.prediction.methods import LEAF, FlatTree
from tuner.prediction.model import SelectionModel
from tuner.prediction.portfolio import SizeFeature
from tuner.system.untrusted.build_texts import is_c_name, is_plain_word

# --- A condition over sizes in C: whole numbers are ``long long``, texts are strings.

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_CALLED = {ast.FloorDiv: "floor_div", ast.Mod: "mod"}
_FUNCTIONS = ("ceil_div", "min", "max", "abs", "gcd", "is_pow2", "next_pow2")
_MOST_EXPONENT = 8
_HELPERS: Mapping[str, tuple[str, str]] = {  # parameters and body; they round as Python does
    "floor_div": (
        "long long a, long long b",
        "return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));",
    ),
    "mod": (
        "long long a, long long b",
        "return b == 0 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);",
    ),
    "ceil_div": (
        "long long a, long long b",
        "return b == 0 ? 0 : a / b + (a % b != 0 && (a < 0) == (b < 0));",
    ),
    "min": ("long long a, long long b", "return b < a ? b : a;"),
    "max": ("long long a, long long b", "return b > a ? b : a;"),
    "abs": ("long long a", "return a < 0 ? -a : a;"),
    "gcd": (
        "long long a, long long b",
        "while (b != 0) { long long c = a % b; a = b; b = c; } return a < 0 ? -a : a;",
    ),
    "is_pow2": ("long long a", "return a > 0 && (a & (a - 1)) == 0;"),
    "next_pow2": ("long long a", "long long p = 1; while (p < a) p *= 2; return p;"),
}


class CConditions:
    """Writes conditions in C, and remembers which helpers they need.

    Args:
        prefix: of the names of helpers.
        texts: sizes that are strings.
    """

    def __init__(self, prefix: str, texts: Collection[str]) -> None:
        self._prefix = prefix
        self._texts = frozenset(texts)
        self._needed: set[str] = set()

    def written(self, condition: str) -> str:
        """An expression of C that is not 0 where the condition is true.

        Raises:
            InputError: it has something that is not said in C here.
        """
        return self._c(ast.parse(reduced(condition, {}, {}), mode="eval").body)

    def helpers(self) -> list[str]:
        """Functions that what was written calls."""
        return [
            f"static inline long long {self._prefix}_{name}({parameters}) {{ {body} }}"
            for name, (parameters, body) in _HELPERS.items()
            if name in self._needed
        ]

    def _c(self, node: ast.expr) -> str:  # noqa: PLR0911 - one of each kind
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return f"{int(node.value)}" if abs(node.value) < 2**31 else f"{node.value}LL"
        if isinstance(node, ast.Name) and node.id in {"true", "false"}:
            return str(int(node.id == "true"))
        if isinstance(node, ast.Name) and node.id not in self._texts:
            return node.id
        if isinstance(node, ast.BoolOp):
            word = " || " if isinstance(node.op, ast.Or) else " && "
            return f"({word.join(map(self._c, node.values))})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.UAdd):
            sign = {ast.Not: "!", ast.USub: "-", ast.UAdd: "+"}[type(node.op)]
            return f"{sign}({self._c(node.operand)})"
        if isinstance(node, ast.IfExp):
            return f"({self._c(node.test)} ? {self._c(node.body)} : {self._c(node.orelse)})"
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            return self._called(node.func.id, [self._c(one) for one in node.args])
        raise InputError(f"{ast.unparse(node)!r:.80} cannot be said in the header")

    def _binary(self, node: ast.BinOp) -> str:
        kind = type(node.op)
        if kind in _OPERATORS:
            return f"({self._c(node.left)} {_OPERATORS[kind]} {self._c(node.right)})"
        if kind in _CALLED:
            return self._called(_CALLED[kind], [self._c(node.left), self._c(node.right)])
        power = node.right.value if kind is ast.Pow and isinstance(node.right, ast.Constant) else None
        if type(power) is int and 1 <= power <= _MOST_EXPONENT:
            return f"({' * '.join([self._c(node.left)] * power)})"
        raise InputError(f"{ast.unparse(node)!r:.80} cannot be said in the header")

    def _called(self, name: str, arguments: list[str]) -> str:
        self._needed.add(name)
        result, *rest = arguments
        if not rest:
            return f"{self._prefix}_{name}({result})"
        for one in rest:
            result = f"{self._prefix}_{name}({result}, {one})"
        return result

    def _compared(self, node: ast.Compare) -> str:
        lefts = [node.left, *node.comparators]
        parts = []
        for left, op, right in zip(lefts, node.ops, node.comparators, strict=False):
            if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List):
                found = " || ".join(self._equal(left, elt) for elt in right.elts)
                parts.append(f"!({found})" if isinstance(op, ast.NotIn) else f"({found})")
            elif isinstance(op, ast.Eq | ast.NotEq):
                found = self._equal(left, right)
                parts.append(f"!({found})" if isinstance(op, ast.NotEq) else found)
            else:
                parts.append(f"({self._c(left)} {_COMPARED[type(op)]} {self._c(right)})")
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def _equal(self, left: ast.expr, right: ast.expr) -> str:
        if isinstance(left, ast.Constant) and isinstance(left.value, str):
            left, right = right, left
        if isinstance(left, ast.Name) and left.id in self._texts and isinstance(right, ast.Constant):
            return f"({same_text(left.id, str(right.value))})"
        return f"({self._c(left)} == {self._c(right)})"


def same_text(name: str, text: str) -> str:
    """Return a C condition that a string equals a text, letter by letter and its end, without a library."""
    letters = [*text.encode(), 0]
    return " && ".join(f"(unsigned char){name}[{place}] == {letter}" for place, letter in enumerate(letters))


ALWAYS = "True"  # a condition that all sizes satisfy
_IDENTIFIER = r"[A-Za-z_]\w*"
_PLAIN = frozenset(string.ascii_letters + string.digits + " !#$%&'()*+,-./:;<=>@[]^_`{|}~")
_LARGEST_INT = 2**31 - 1


def c_selector(
    model: SelectionModel,
    options: Sequence[Sequence[str]] = (),
    entries: Mapping[str, Mapping[int, str]] | None = None,
    functions: Mapping[str, Mapping[int, str]] | None = None,
    *,
    expanded: str = "",
    launched: Mapping[str, Sequence[str | None]] | None = None,
) -> str:
    """The header; C99 and C++, needs no library.

    Args:
        model: the versions and their tree.
        options: per version, what the compiler is told for it, as ``-DP=4``; without any there is no table.
        entries: by launch and version, the function as the source names it, as ``axpb<4>``.
        functions: by launch and version, the name of the function in the cubin.
        expanded: name of a source with pragmas, whose expansion the options are for; empty for others.
        launched: by launch that not all sizes have, for which it is launched, a condition of each version.

    Raises:
        InputError: a size's name is no name in C, or an option would not stay one word.
    """
    name = re.sub(r"\W|^(?=\d)", "_", model.kernel, flags=re.ASCII)
    for size in model.ranges:
        if not is_c_name(size):
            raise InputError(f"{model.kernel}: size {size!r} is no name in C")
    guard = f"{name.upper()}_SELECTOR_H"
    versions = model.portfolio.versions
    title = f"{model.kernel} on {model.device.name}, {model.objective}"
    lines = [
        f"/* {_comment(title)}: {len(versions)} versions.",
        f"   Trained {_comment(model.date)} on {len(model.inputs)} inputs: {model.claim}.",
        *(["   Modelled: a simulated device made the numbers."] if model.device.modelled else []),
        f"   Trained range: {_ranges(model)}. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        f"#define {name.upper()}_VERSIONS {len(versions)}",
        f"#define {name.upper()}_SOURCE {_string(model.source)}",
        "",
        *_conditional(name, model, launched or {}),
        "",
    ]
    for option in itertools.chain.from_iterable(options):
        if not is_plain_word(option) or ("," in option and not option.startswith("--diag-")):
            raise InputError(
                f"{model.kernel}: the option {option!r} cannot stand in the table: a shell or nvcc would"
                " read it otherwise; --format header takes such values of single runs"
            )
    if options:
        place = (
            f", with the source of `tuner kernels expand {_comment(expanded)}`"
            if expanded and any(options)
            else ""
        )
        lines += [
            f"/* What the compiler is told for a version{place}. */",
            f"static const char *const {name}_options[{len(versions)}] = {{",
            *(f"    {_string(' '.join(one))}," for one in options),
            *("};", ""),
        ]
    named = "/* The functions of the launches, as the source names them. */"
    lines += _functions(f"{name}_entry", len(versions), entries or {}, named)
    named = "/* Names of the functions in the cubins. */"
    lines += _functions(f"{name}_function", len(versions), functions or {}, named)
    lines += [*_tunables(name, model), f"#endif /* {guard} */"]
    return "\n".join(lines) + "\n"


def _ranges(model: SelectionModel) -> str:
    shown = []
    for name, values in model.ranges.items():
        whole = all(isinstance(value, int) for value in values)
        shown.append(
            f"{name} = {values[0]} to {values[-1]}" if whole else f"{name} in {', '.join(map(str, values))}"
        )
    return _comment("; ".join(shown))


def _parameters(model: SelectionModel) -> str:
    """Sizes in their order; whole numbers, and texts as strings."""
    kinds = {
        name: "const char *" if _is_text(values) else "long long" for name, values in model.ranges.items()
    }
    return (
        ", ".join(f"{kind}{'' if kind.endswith('*') else ' '}{name}" for name, kind in kinds.items())
        or "void"
    )


def _is_text(values: Sequence[object]) -> bool:
    return not all(isinstance(value, int) for value in values)


def _conditional(name: str, model: SelectionModel, launched: Mapping[str, Sequence[str | None]]) -> list[str]:
    """The function that picks, and those that tell whether a launch is needed; their helpers first."""
    texts = [size for size, values in model.ranges.items() if _is_text(values)]
    conditions = CConditions(name, texts)
    lines = _selection(name, model, conditions)
    for stage, listed in launched.items():
        title = f"/* Whether a version has its launch {_comment(stage)} for a problem. */"
        lines += ["", title, *_switch(f"launches_{_c_name(stage)}", name, model, listed, conditions)]
    return [*conditions.helpers(), *lines]


def _switch(
    function: str,
    name: str,
    model: SelectionModel,
    listed: Sequence[str | None],
    conditions: CConditions,
) -> list[str]:
    """A function of a version and the sizes that is 1 where the version's condition holds."""
    cases = []
    for place, condition in enumerate(listed):
        if condition is None:
            raise InputError(f"{model.kernel}: its rules are Python functions, which no header can hold")
        try:
            cases.append(f"    case {place}: return {conditions.written(condition)} != 0;")
        except InputError as e:
            raise InputError(f"{model.kernel}: the condition {condition!r:.200}: {e}") from e
    named = {one for condition in listed for one in Expression(condition or "").names}
    parameters = f", {_parameters(model)}" if model.ranges else ""
    return [
        f"static inline int {name}_{function}(int version{parameters})",
        "{",
        *(f"    (void){size};" for size in model.ranges if size not in named),
        "    switch (version) {",
        *cases,
        "    default: return 0;",
        "    }",
        "}",
    ]


def _selection(name: str, model: SelectionModel, conditions: CConditions) -> list[str]:
    """The function that picks: the first version in the order of the tree's leaf that is allowed."""
    parameters, arguments = _parameters(model), ", ".join(model.ranges)
    portfolio, count = model.portfolio, len(model.portfolio.versions)
    if all(condition == ALWAYS for condition in model.conditions):
        return [
            "/* The version for a problem: a number below the count above. */",
            f"static inline int {name}_select({parameters})",
            "{",
            *_body(model, [order[0] for order in portfolio.orders]),
            "}",
        ]
    orders = ", ".join("{" + ", ".join(map(str, order)) + "}" for order in portfolio.orders)
    return [
        "",
        "/* Whether a version takes a problem. */",
        *_switch("allows", name, model, model.conditions, conditions),
        "",
        f"static inline int {name}_leaf({parameters})",
        "{",
        *_body(model, list(range(len(portfolio.orders)))),
        "}",
        "",
        "/* The version for a problem: a number below the count above; -1 where none takes it. */",
        f"static inline int {name}_select({parameters})",
        "{",
        f"    static const signed char orders[{len(portfolio.orders)}][{count}] = {{{orders}}};",
        f"    const signed char *order = orders[{name}_leaf({arguments})];",
        f"    for (int place = 0; place < {count}; ++place)",
        f"        if ({name}_allows(order[place], {arguments})) return order[place];",
        "    return -1;",
        "}",
    ]


def _body(model: SelectionModel, values: Sequence[int]) -> list[str]:
    """The tree, whose leaves return one of the values."""
    tree, features = model.portfolio.tree, model.portfolio.features
    used = {name for node in tree.feature if node != LEAF for name, _ in features[node].powers}
    lines = [f"    (void){name};" for name in model.ranges if name not in used]
    return [*lines, *_node(tree, features, values, 0, 1)]


def _node(
    tree: FlatTree, features: Sequence[SizeFeature], values: Sequence[int], node: int, depth: int
) -> list[str]:
    indent = "    " * depth
    if tree.feature[node] == LEAF:
        return [f"{indent}return {values[int(tree.value[node])]};"]
    condition = _condition(features[tree.feature[node]], float(tree.threshold[node]))
    return [
        f"{indent}if ({condition}) {{",
        *_node(tree, features, values, int(tree.left[node]), depth + 1),
        f"{indent}}}",
        *_node(tree, features, values, int(tree.right[node]), depth),
    ]


def _condition(feature: SizeFeature, threshold: float) -> str:
    """A comparison of products of sizes; a threshold is a logarithm to base 2."""
    if feature.text:
        return f"!({same_text(feature.powers[0][0], feature.text)})"
    above = [f"(double){name}" for name, power in feature.powers if power > 0]
    below = [f"(double){name}" for name, power in feature.powers if power < 0]
    bound = math.pow(2.0, threshold)
    return f"{' * '.join(['1.0', *above])} <= {' * '.join([repr(bound), *below])}"


def _functions(name: str, versions: int, functions: Mapping[str, Mapping[int, str]], title: str) -> list[str]:
    """A table for each launch: the name of the function in each version, 0 without that launch."""
    lines = []
    for stage, names in functions.items():
        table = f"{name}_{_c_name(stage)}"
        lines.append(f"static const char *const {table}[{versions}] = {{")
        lines += [f"    {_string(names[place]) if place in names else 0}," for place in range(versions)]
        lines.append("};")
    return [title, *lines, ""] if lines else []


def _c_name(stage: str) -> str:
    """The name of a launch as a part of a name in C."""
    return re.sub(r"[^A-Za-z0-9_]", "_", stage)


def _tunables(name: str, model: SelectionModel) -> list[str]:
    """A table for each tunable that is a whole number in all versions."""
    versions = [dict(version) for version in model.portfolio.versions]
    lines = []
    for tunable in versions[0]:
        values = [version.get(tunable) for version in versions]
        numbers = [int(value) for value in values if isinstance(value, int)]
        taken = tunable in ("select", "options") or tunable.startswith(("function_", "entry_"))
        if len(numbers) == len(values) and re.fullmatch(_IDENTIFIER, tunable, re.ASCII) and not taken:
            kind = "int" if max(map(abs, numbers)) <= _LARGEST_INT else "long long"
            listed = ", ".join(map(str, numbers))
            lines.append(f"static const {kind} {name}_{tunable}[{len(versions)}] = {{{listed}}};")
    return [*lines, ""] if lines else []


def _string(text: str) -> str:
    """A string of C; bytes of UTF-8 that are no plain letters stand in octal."""
    plain = (chr(one) if chr(one) in _PLAIN else f"\\{one:03o}" for one in text.encode())
    return f'"{"".join(plain)}"'


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ")
