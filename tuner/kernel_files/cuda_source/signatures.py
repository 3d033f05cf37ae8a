"""Signatures and parameters of the functions of CUDA C++ text, read without a compiler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tuner.kernel_files.cuda_source.tokens import (
    Token,
    defined_macros,
    group_end,
    split,
    tokens_of,
    undecided_macros,
)
from tuner.model.errors import InputError, suggestion

# --- Parameters of CUDA C++ functions: their names, and the dtypes of their C types.

_QUALIFIERS = frozenset(
    {
        *("const", "volatile", "restrict", "__restrict__", "__restrict", "__const__", "__grid_constant__"),
        *("register", "struct", "class", "union", "enum", "typename", "constexpr"),
    }
)
_SIGNS = frozenset({"signed", "unsigned"})
BUILT_IN = frozenset(
    {"bool", "char", "short", "int", "long", "float", "double", "void", "auto", "wchar_t", *_SIGNS}
)
_WHOLE = {"char": 8, "short": 16, "int": 32, "long": 64, "longlong": 64}  # bits under Linux
_DTYPES = {
    "bool": "bool",
    "float": "float32",
    "double": "float64",
    "size_t": "uint64",
    "ptrdiff_t": "int64",
    "uchar": "uint8",
    "ushort": "uint16",
    "uint": "uint32",
    "ulong": "uint64",
    "half": "float16",
    "__half": "float16",
    "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "float2": "complex64",
    "double2": "complex128",
    "cuComplex": "complex64",
    "cuFloatComplex": "complex64",
    "cuDoubleComplex": "complex128",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_MAX_ALIASES = 8  # of a type that is an alias of an alias; ends circles


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        type: type as text, without ``const`` and ``__restrict__``; of a pointer, what it points to.
        pointer: whether it is a pointer, a reference or an array.
        const: whether the value, or what the pointer points to, is ``const``.
        dtype: element type as NumPy names it (and ``bfloat16``); None for any other, as ``void`` or a struct.
    """

    name: str
    type: str
    pointer: bool
    const: bool
    dtype: str | None

    def __str__(self) -> str:
        return f"{'const ' * (self.const and self.pointer)}{self.type}{'*' * self.pointer}"


def parameters_in(text: str) -> list[Parameter]:
    """The parameters of a list of types, as a demangler writes it: ``float const*, int``."""
    parts = split(tokens_of(text))
    return [parameter for parameter in (parameter_of(part, {}) for part in parts) if parameter is not None]


def dtype_of(type_text: str) -> str | None:
    """The dtype of a C type, as ``float32`` of ``float``; None where NumPy has no single one."""
    words = type_text.replace("std::", "").replace("cuda::", "").replace("thrust::", "").split()
    if not words or not set(words) & (_WHOLE.keys() | _SIGNS):
        return _DTYPES.get("".join(words))
    sign = "u" if "unsigned" in words else ""
    rest = [word for word in words if word not in _SIGNS]
    if len(rest) > 1 and rest != ["long", "long"]:
        rest = [word for word in rest if word != "int"]
    bits = _WHOLE.get("".join(rest) or "int")
    return None if bits is None else f"{sign}int{bits}"


def parameter_of(part: Sequence[Token], aliases: Mapping[str, str]) -> Parameter | None:
    """The parameter of some tokens; None for the ``void`` of an empty list."""
    words = _declaration(part)
    if words in ([], ["void"]):
        return None
    name = ""
    brackets = words.index("[") if "[" in words else None
    if "(" in words:  # a pointer to a function or a reference to an array
        inner = words[words.index("(") :]
        name = next((word for word in inner if word.isidentifier() and word not in _QUALIFIERS), "")
        first = " ".join(words[: words.index("(")])
        return Parameter(name, f"{first} ()", pointer=True, const="const" in words, dtype=None)
    if brackets is not None:
        words = words[:brackets]
    name, words = _without_name(words)
    if brackets is not None:
        words = [*words, "*"]
    for _ in range(_MAX_ALIASES):
        if not any(word in aliases and aliases[word] for word in words):
            break
        words = [text for word in words for text in (aliases.get(word) or word).split()]
    return _typed(name, words)


def _declaration(part: Sequence[Token]) -> list[str]:
    """The words of a parameter up to its default value, without attributes."""
    words: list[str] = []
    index = 0
    while index < len(part) and part[index].text != "=":
        text = part[index].text
        following = part[index + 1].text if index + 1 < len(part) else ""
        if text == "[" and following == "[":
            index = group_end(part, index)
        elif text in ("__attribute__", "__align__", "alignas") and following == "(":
            index = group_end(part, index + 1)
        else:
            words += ["&", "&"] if text == "&&" else [text]
            index += 1
    return words


def _without_name(words: list[str]) -> tuple[str, list[str]]:
    """The name that ends a declaration, and the type before it."""
    types = [word for word in words if word.isidentifier() and word not in _QUALIFIERS]
    last = words[-1] if words else ""
    unnamed = (
        not last.isidentifier()
        or last in _QUALIFIERS
        or last in BUILT_IN
        or len(types) < 2  # noqa: PLR2004 - a type and a name
        or words[-2:-1] == ["::"]
    )
    return ("", words) if unnamed else (last, words[:-1])


def _typed(name: str, words: Sequence[str]) -> Parameter:
    marks = [i for i, word in enumerate(words) if word in ("*", "&") and ">" not in words[i:]]
    pointee = list(words[: marks[-1]] if marks else words)
    outer = [word for word in pointee if word not in _QUALIFIERS]
    text = " ".join(outer)
    for sign in ("::", "<", ">", ",", "*", "&"):
        text = text.replace(f" {sign} ", sign).replace(f" {sign}", sign)
    text = text.replace("< ", "<").replace(":: ", "::").replace(",", ", ").lstrip(":")
    return Parameter(name, text.strip(), bool(marks), "const" in pointee, dtype_of(text.replace(", ", ",")))


# --- Functions of a text: ``__global__`` ones, their templates, and parameters under given types.

_STOPS = frozenset({";", "{", "}", "__global__"})
_MAX_ALIAS_TOKENS = 64


@dataclass(frozen=True)
class TemplateParameter:
    """A parameter of a template.

    Attributes:
        name: empty where it has none.
        kind: ``typename``, or the type of the value, as ``int``.
        default: as written; empty where there is none.
    """

    name: str
    kind: str
    default: str = ""

    @property
    def is_type(self) -> bool:
        """True if the parameter is a type."""
        return self.kind == "typename"


@dataclass(frozen=True)
class GlobalFunction:
    """A ``__global__`` function.

    Attributes:
        template: its template parameters, in order; those with a default value, too.
        parameters: its parameters, in order; types that are template parameters as they are.
        line: number of the line of its name, from 1.
        namespace: the namespaces that it stands in, as ``outer::inner``; empty in none.
        body: its tokens between the braces; none of a declaration.
        last_line: of its body, or of its name.
    """

    name: str
    template: tuple[TemplateParameter, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    line: int = 1
    namespace: str = ""
    body: tuple[Token, ...] = field(default=(), repr=False)
    last_line: int = 1

    @property
    def qualified(self) -> str:
        """Its name with its namespaces."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.qualified}({', '.join(map(str, self.parameters))})"


def global_functions(source_text: str) -> list[GlobalFunction]:
    """The ``__global__`` functions of a source, each name once, in their order."""
    functions: dict[str, GlobalFunction] = {}
    for function in _declared(source_text):
        functions.setdefault(function.name, function)
    return list(functions.values())


def defined_functions(source_text: str) -> list[GlobalFunction]:
    """The ``__global__`` functions that a source defines, all of a name, in their order."""
    return [function for function in _declared(source_text) if function.body]


@lru_cache(maxsize=32)  # searches ask for each configuration
def _declared(source_text: str) -> tuple[GlobalFunction, ...]:
    """All declarations of ``__global__`` functions, in their order."""
    macros = defined_macros(source_text)
    marks = {"__global__", *(name for name, body in macros.items() if "__global__" in body.split())}
    tokens = tokens_of(source_text)
    undecided = undecided_macros(source_text)
    aliases = _aliases(tokens) | {name: body for name, body in macros.items() if name not in undecided}
    functions = []
    start = 0  # of the statement
    spaces: list[str | None] = []  # a namespace, or None, for each open brace
    for index, token in enumerate(tokens):
        if token.text == "{":
            words = [before.text for before in tokens[start:index]]
            named = [word for word in words if word.isidentifier() and word not in ("inline", "namespace")]
            spaces.append("::".join(named) if "namespace" in words else None)
        elif token.text == "}" and spaces:
            spaces.pop()
        if token.text in (";", "{", "}"):
            start = index + 1
        elif token.text in marks:
            function = _function(tokens, start, index, aliases)
            if function is not None:
                functions.append(replace(function, namespace="::".join(filter(None, spaces))))
    return tuple(functions)


def parameters_of(source_text: str, entry: str | None = None, *, sole: bool = False) -> list[Parameter]:
    """The parameters of a ``__global__`` function, in order.

    Args:
        source_text: CUDA C++.
        entry: name or name expression, as ``axpy<float, 4>``, whose types stand for those of the template;
            None for the only function.
        sole: whether declarations of that name must agree; else the first counts.

    Raises:
        InputError: the source has no such function, or several and none is named, or they do not agree.
    """
    functions = global_functions(source_text)
    names = [function.name for function in functions]
    qualified, _, arguments = (entry or "").partition("<")
    name = qualified.strip().rpartition("::")[2]
    if entry is None and len(functions) != 1:
        raise InputError(f"{len(functions)} __global__ functions ({', '.join(names)}); name one of them")
    function = next((declared for declared in functions if entry is None or declared.name == name), None)
    if function is None:
        raise InputError(
            f"no __global__ function is called {name!r}; there is {', '.join(names) or 'none'}"
            f"{suggestion(name, names)}"
        )
    ways = {
        tuple(map(str, declared.parameters))
        for declared in _declared(source_text)
        if declared.name == function.name
    }
    if sole and len(ways) > 1:
        raise InputError(f"{function.name} is declared in {len(ways)} ways")
    types = _given_types(function, arguments.rpartition(">")[0])
    return [_resolved(parameter, types) for parameter in function.parameters]


def _given_types(function: GlobalFunction, arguments: str) -> dict[str, str]:
    """Type parameter -> type, of the arguments of a template and of default values."""
    texts = [" ".join(token.text for token in part) for part in split(tokens_of(arguments))]
    values = texts + [parameter.default for parameter in function.template[len(texts) :]]
    return {
        parameter.name: value
        for parameter, value in zip(function.template, values, strict=False)
        if parameter.is_type and value
    }


def _resolved(parameter: Parameter, types: Mapping[str, str]) -> Parameter:
    words = [token.text for token in tokens_of(parameter.type)]
    if not any(word in types for word in words):
        return parameter
    other = parameter_of(tokens_of(" ".join(types.get(word, word) for word in words)), {})
    if other is None:
        return parameter
    if other.pointer and parameter.pointer:
        return replace(parameter, type=f"{other.type}*", dtype=None)
    if other.pointer:
        return replace(other, name=parameter.name)
    return replace(parameter, type=other.type, dtype=other.dtype)


def _aliases(tokens: Sequence[Token]) -> dict[str, str]:
    """Names of ``using`` and ``typedef`` for other types; empty where they stand for several."""
    types: dict[str, str] = {}
    for index, token in enumerate(tokens):
        if token.text not in ("using", "typedef"):
            continue
        words = [following.text for following in tokens[index + 1 : index + _MAX_ALIAS_TOKENS]]
        words = words[: next((i for i, word in enumerate(words) if word in (";", "{")), 0)]
        if token.text == "using" and words[1:2] == ["="] and words[2:]:
            name, meant = words[0], " ".join(words[2:])
        elif token.text == "typedef" and len(words) > 1:
            name, meant = words[-1], " ".join(words[:-1])
        else:
            continue
        types[name] = meant if types.get(name, meant) == meant else ""
    return types


def _function(
    tokens: Sequence[Token], start: int, mark: int, aliases: Mapping[str, str]
) -> GlobalFunction | None:
    template = _template(tokens, start, mark)
    index = _name_place(tokens, mark + 1)
    if template is None or index is None:
        return None
    hidden = {parameter.name for parameter in template}
    visible = {name: body for name, body in aliases.items() if name not in hidden}
    opening = next(i for i in range(index, len(tokens)) if tokens[i].text == "(")
    behind = group_end(tokens, opening)
    parameters = (parameter_of(part, visible) for part in split(tokens[opening + 1 : behind - 1]))
    named = tuple(parameter for parameter in parameters if parameter is not None)
    brace = next((i for i in range(behind, len(tokens)) if tokens[i].text in ("{", ";")), len(tokens))
    body: Sequence[Token] = ()
    if brace < len(tokens) and tokens[brace].text == "{":
        body = tokens[brace + 1 : group_end(tokens, brace)]  # with the brace at its end
    last = body[-1].line if body else tokens[index].line
    return GlobalFunction(
        tokens[index].text, template, named, tokens[index].line, body=tuple(body), last_line=last
    )


def _template(tokens: Sequence[Token], start: int, mark: int) -> tuple[TemplateParameter, ...] | None:
    """Template parameters of the statement; None where it instantiates a template only."""
    for index in range(mark - 1, start - 1, -1):
        if tokens[index].text == "__global__":
            break
        if tokens[index].text == "template":
            if tokens[index + 1].text != "<":
                return None
            inner = tokens[index + 2 : group_end(tokens, index + 1) - 1]
            return tuple(map(_template_parameter, split(inner)))
    return ()


def _template_parameter(part: Sequence[Token]) -> TemplateParameter:
    equals = next((i for i, token in enumerate(part) if token.text == "="), len(part))
    words = [token.text for token in part[:equals]]
    default = " ".join(token.text for token in part[equals + 1 :])
    if words[:1] in (["typename"], ["class"]):
        name = words[-1] if len(words) > 1 and words[-1].isidentifier() else ""
        return TemplateParameter(name, "typename", default)
    named = len(words) > 1 and words[-1].isidentifier() and words[-1] not in BUILT_IN
    kind = words[:-1] if named else words
    return TemplateParameter(words[-1] if named else "", " ".join(kind), default)


def _name_place(tokens: Sequence[Token], start: int) -> int | None:
    """Return the index of the function's name: before a group that the body, or the end, follows."""
    index = start
    while index < len(tokens) and tokens[index].text not in _STOPS:
        token = tokens[index]
        behind = index + 1
        if token.text in ("(", "["):
            index = group_end(tokens, index)
            continue
        if token.kind == "word" and not token.text.startswith("__"):
            if behind < len(tokens) and tokens[behind].text == "<":
                behind = group_end(tokens, behind)
            if behind < len(tokens) and tokens[behind].text == "(" and _ends(tokens, behind):
                return index
        index += 1
    return None


def _ends(tokens: Sequence[Token], opening: int) -> bool:
    """Return True if the tokens after the group end a declaration."""
    end = group_end(tokens, opening)
    if end >= len(tokens):
        return tokens[-1].text == ")"
    follows = tokens[end].text
    return follows in ("{", ";", "[", "noexcept", "requires") or follows.startswith("__")
