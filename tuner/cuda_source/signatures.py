"""Signatures of the ``__global__`` functions of CUDA C++ text, read without a compiler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tuner.cuda_source.parameters import BUILT_IN, Parameter, parameter_of
from tuner.cuda_source.tokens import Token, defined_macros, group_end, split, tokens_of, undecided_macros
from tuner.model.errors import InputError, suggestion

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
        """Whether it stands for a type."""
        return self.kind == "typename"


@dataclass(frozen=True)
class GlobalFunction:
    """A ``__global__`` function.

    Attributes:
        name: its name.
        template: its template parameters, in order; those with a default value, too.
        parameters: its parameters, in order; types that are template parameters as they are.
        line: number of the line of its name, from 1.
    """

    name: str
    template: tuple[TemplateParameter, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    line: int = 1

    @property
    def template_parameters(self) -> tuple[str, ...]:
        """Names of the template parameters."""
        return tuple(one.name for one in self.template)


def global_functions(source_text: str) -> list[GlobalFunction]:
    """The ``__global__`` functions of a source, each name once, in their order.

    Args:
        source_text: CUDA C++; any text is read without an error.
    """
    found: dict[str, GlobalFunction] = {}
    for function in _declared(source_text):
        found.setdefault(function.name, function)
    return list(found.values())


@lru_cache(maxsize=32)  # searches ask for each configuration
def _declared(source_text: str) -> tuple[GlobalFunction, ...]:
    """All declarations of ``__global__`` functions, in their order."""
    macros = defined_macros(source_text)
    marks = {"__global__", *(name for name, body in macros.items() if "__global__" in body.split())}
    tokens = tokens_of(source_text)
    undecided = undecided_macros(source_text)
    aliases = _aliases(tokens) | {name: body for name, body in macros.items() if name not in undecided}
    found = []
    start = 0  # of the statement
    for place, token in enumerate(tokens):
        if token.text in (";", "{", "}"):
            start = place + 1
        elif token.text in marks:
            function = _function(tokens, start, place, aliases)
            if function is not None:
                found.append(function)
    return tuple(found)


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
    wanted, _, arguments = (entry or "").partition("<")
    name = wanted.strip().rpartition("::")[2]
    if entry is None and len(functions) != 1:
        raise InputError(f"{len(functions)} __global__ functions ({', '.join(names)}); name one of them")
    function = next((one for one in functions if entry is None or one.name == name), None)
    if function is None:
        raise InputError(
            f"no __global__ function is called {name!r}; there is {', '.join(names) or 'none'}"
            f"{suggestion(name, names)}"
        )
    ways = {tuple(map(str, one.parameters)) for one in _declared(source_text) if one.name == function.name}
    if sole and len(ways) > 1:
        raise InputError(f"{function.name} is declared in {len(ways)} ways")
    types = _given_types(function, arguments.rpartition(">")[0])
    return [_resolved(parameter, types) for parameter in function.parameters]


def _given_types(function: GlobalFunction, arguments: str) -> dict[str, str]:
    """Type parameter -> type, of the arguments of a template and of default values."""
    given = [" ".join(token.text for token in part) for part in split(tokens_of(arguments))]
    values = given + [one.default for one in function.template[len(given) :]]
    return {
        one.name: value
        for one, value in zip(function.template, values, strict=False)
        if one.is_type and value
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
    found: dict[str, str] = {}
    for place, token in enumerate(tokens):
        if token.text not in ("using", "typedef"):
            continue
        words = [one.text for one in tokens[place + 1 : place + _MAX_ALIAS_TOKENS]]
        words = words[: next((i for i, word in enumerate(words) if word in (";", "{")), 0)]
        if token.text == "using" and words[1:2] == ["="] and words[2:]:
            name, meant = words[0], " ".join(words[2:])
        elif token.text == "typedef" and len(words) > 1:
            name, meant = words[-1], " ".join(words[:-1])
        else:
            continue
        found[name] = meant if found.get(name, meant) == meant else ""
    return found


def _function(
    tokens: Sequence[Token], start: int, mark: int, aliases: Mapping[str, str]
) -> GlobalFunction | None:
    template = _template(tokens, start, mark)
    place = _name_place(tokens, mark + 1)
    if template is None or place is None:
        return None
    hidden = {one.name for one in template}
    known = {name: body for name, body in aliases.items() if name not in hidden}
    opening = next(i for i in range(place, len(tokens)) if tokens[i].text == "(")
    inner = tokens[opening + 1 : group_end(tokens, opening) - 1]
    parameters = (parameter_of(part, known) for part in split(inner))
    taken = tuple(one for one in parameters if one is not None)
    return GlobalFunction(tokens[place].text, template, taken, tokens[place].line)


def _template(tokens: Sequence[Token], start: int, mark: int) -> tuple[TemplateParameter, ...] | None:
    """Template parameters of the statement; None where it instantiates a template only."""
    for place in range(mark - 1, start - 1, -1):
        if tokens[place].text == "__global__":
            break
        if tokens[place].text == "template":
            if tokens[place + 1].text != "<":
                return None
            inner = tokens[place + 2 : group_end(tokens, place + 1) - 1]
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
    """Where the name of the function stands: before a group that the body, or the end, follows."""
    place = start
    while place < len(tokens) and tokens[place].text not in _STOPS:
        token = tokens[place]
        behind = place + 1
        if token.text in ("(", "["):
            place = group_end(tokens, place)
            continue
        if token.kind == "word" and not token.text.startswith("__"):
            if behind < len(tokens) and tokens[behind].text == "<":
                behind = group_end(tokens, behind)
            if behind < len(tokens) and tokens[behind].text == "(" and _ends(tokens, behind):
                return place
        place += 1
    return None


def _ends(tokens: Sequence[Token], opening: int) -> bool:
    """Whether what follows the group is the end of a declaration."""
    end = group_end(tokens, opening)
    if end >= len(tokens):
        return tokens[-1].text == ")"
    follows = tokens[end].text
    return follows in ("{", ";", "[", "noexcept", "requires") or follows.startswith("__")
