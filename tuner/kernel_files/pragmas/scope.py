"""Meaning of the names in a loop nest: numbers, arrays, macros; as far as the file itself states it."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from tuner.kernel_files.pragmas.directives import Directive
from tuner.kernel_files.pragmas.syntax import Macros, SyntaxTree

_SIGNED = ("char", "short", "int", "long", "long long", "signed char", "ptrdiff_t")
_NARROW = ("bool", "unsigned char", "unsigned short", "uint8_t", "uint16_t")  # their values become int
_WORDS = ("unsigned", "unsigned int", "uint32_t")
_LARGE = ("unsigned long", "unsigned long long", "size_t", "uint64_t")
_SIGNED_BITS = tuple(f"int{bits}_t" for bits in (8, 16, 32, 64))
_FLOATING = ("float", "double", "half", "__half", "nv_bfloat16", "__nv_bfloat16")
_KINDS = {
    **dict.fromkeys((*_SIGNED, *_NARROW, *_SIGNED_BITS), "signed"),
    **dict.fromkeys(_WORDS, "unsigned"),
    **dict.fromkeys(_LARGE, "large"),
    **dict.fromkeys(_FLOATING, "floating"),
}
_WIDE = ("long", "long long", "ptrdiff_t", "int64_t", *_LARGE)
_SHARED = ("__shared__", "__device__", "__managed__", "volatile", "extern", "static", "register", "mutable")
_DECLARATIONS = (
    *("declaration", "parameter_declaration", "optional_parameter_declaration", "for_range_loop"),
    *("variadic_parameter_declaration", "structured_binding_declarator", "field_declaration"),
)
_MOST_ALIASES = 8
_INTEGER = re.compile(r"0[xX][0-9a-fA-F']+([uUlL]*)|\d[\d']*([uUlL]*)")


@dataclass(frozen=True)
class NameDeclaration:
    """A declaration of a name.

    Attributes:
        type: of the number or of the elements, without qualifiers.
        qualifiers: ``const``, ``__shared__`` and the like.
        dimensions: subscripts that lead to an element; 0 of a number, -1 of a reference or what is not
            understood.
        pointer: whether the first subscript goes through a pointer.
        restrict: whether the pointer is ``__restrict__``.
        parameter: whether it is a parameter of the function.
        local: whether it stands in the function.
    """

    type: str
    qualifiers: frozenset[str]
    dimensions: int
    pointer: bool = False
    restrict: bool = False
    parameter: bool = False
    local: bool = True

    @property
    def constant(self) -> bool:
        """True if the value cannot change."""
        return bool(self.qualifiers & {"const", "constexpr", "__constant__"})


class Scope:
    """The declarations that a loop nest may mean.

    Args:
        numbers: sizes and tunables of the kernel, which are numbers wherever they are not declared.

    Attributes:
        function: the function around the nest; None outside, or in a lambda.
    """

    def __init__(self, tree: SyntaxTree, nest: Node, numbers: Collection[str] = ()) -> None:
        self._tree = tree
        self._nest = nest
        self._numbers = frozenset(numbers)
        self.macros: Macros = tree.macros
        self.function: Node | None = None
        self._types: set[str] = set()  # template parameters that are types
        self._declarations: dict[str, list[NameDeclaration]] = {}
        outer: Node | None = nest
        while outer is not None:
            if outer.type == "lambda_expression" and self.function is None:
                return
            if outer.type == "function_definition" and self.function is None:
                self.function = outer
            if outer.type == "template_declaration":
                self._add_template(outer)
            outer = outer.parent
        if self.function is not None:
            self._add_all(tree.parts(self.function, *_DECLARATIONS), local=True)
            outside = (node for node in tree.outline if node.type == "declaration")
            self._add_all(outside, local=False)

    def declared(self, name: str) -> list[NameDeclaration]:
        """All declarations of a name outside the nest."""
        return self._declarations.get(name, [])

    def kind(self, name: str) -> str:
        """The kind of a number that the nest cannot change; empty of all else.

        Returns:
            ``signed``, ``unsigned`` (of 32 bits), ``large`` (unsigned, of 64) or ``floating``.
        """
        macro = self.macros.number(name)
        if name in self.macros:
            literal = _INTEGER.fullmatch(macro)
            return "floating" if macro and not literal else _kind_of_literal(macro)
        declared = self.declared(name)
        if not declared:
            return "signed" if name in self._numbers else ""
        if any(declaration.dimensions or declaration.qualifiers & {"volatile"} for declaration in declared):
            return ""
        if any(
            not declaration.constant and (not declaration.local or declaration.qualifiers & set(_SHARED))
            for declaration in declared
        ):
            return ""
        kinds = {self.kind_of_type(declaration.type) for declaration in declared}
        return kinds.pop() if len(kinds) == 1 else ""

    def wide(self, name: str) -> bool:
        """Return True if a number has 64 bits."""
        return any(self._resolved(declaration.type) in _WIDE for declaration in self.declared(name))

    def kind_of_type(self, name: str) -> str:
        """The kind of a type's numbers; empty of classes and what is not known."""
        resolved = self._resolved(name)
        return "floating" if resolved in self._types else _KINDS.get(resolved, "")

    def _resolved(self, name: str) -> str:
        """A type behind its aliases."""
        for _ in range(_MOST_ALIASES):
            target = self._tree.type_aliases.get(name) or self.macros.text(name)
            if not target:
                break
            name = " ".join(target.split())
        return "" if name in self._tree.classes else _ordered(name)

    def _add_template(self, node: Node) -> None:
        parameters = node.child_by_field_name("parameters")
        for parameter in [] if parameters is None else parameters.children:
            if parameter.type in ("type_parameter_declaration", "optional_type_parameter_declaration"):
                default = parameter.child_by_field_name("default_type")
                names = [inner for inner in parameter.children if inner.type == "type_identifier"]
                if names and (default is None or _KINDS.get(_ordered(self._tree.text(default)))):
                    self._types.add(self._tree.text(names[0]))
            elif parameter.type in ("parameter_declaration", "optional_parameter_declaration"):
                self._add(parameter, local=True, template=True)

    def _add_all(self, nodes: Iterable[Node], *, local: bool) -> None:
        for node in nodes:
            if not (self._nest.start_byte <= node.start_byte < self._nest.end_byte):
                self._add(node, local=local)

    def _add(self, node: Node, *, local: bool, template: bool = False) -> None:
        for name, declared in declarations(self._tree, node):
            qualifiers = declared.qualifiers | ({"constexpr"} if template else set())
            outer = NameDeclaration(
                declared.type,
                frozenset(qualifiers),
                declared.dimensions,
                declared.pointer,
                declared.restrict,
                parameter=local and not template and node.type.endswith("parameter_declaration"),
                local=local,
            )
            self._declarations.setdefault(name, []).append(outer)


def declarations(tree: SyntaxTree, node: Node) -> Iterator[tuple[str, NameDeclaration]]:
    """The names that a declaration introduces."""
    typed = node.child_by_field_name("type")
    text = "" if typed is None else " ".join(tree.text(typed).split())
    words = frozenset(
        tree.text(child)
        for child in node.children
        if child.type in ("type_qualifier", "storage_class_specifier")
    )
    for declarator in node.children_by_field_name("declarator"):
        yield from _declarator(tree, declarator, text, words)


def _declarator(
    tree: SyntaxTree, declarator: Node, typed: str, words: frozenset[str]
) -> Iterator[tuple[str, NameDeclaration]]:
    arrays = pointers = 0
    restrict = odd = outer_array = False
    node: Node | None = declarator
    while node is not None and node.type != "identifier":
        if node.type == "function_declarator":
            return  # no variable
        if node.type == "array_declarator":
            arrays += 1
            outer_array = True
        elif node.type == "pointer_declarator":
            pointers += 1
            restrict = any(tree.text(child).startswith("__restrict") for child in node.children)
            odd |= any(tree.text(child) == "volatile" for child in node.children)
        elif node.type not in ("init_declarator", "parenthesized_declarator"):
            odd = True
        inner = node.child_by_field_name("declarator")
        node = inner or next(
            (child for child in node.children if child.type.endswith(("declarator", "identifier"))), None
        )
    if node is None:
        return
    odd |= pointers > 1 or (pointers == 1 and arrays > 0 and "(" not in tree.text(declarator))
    dimensions = -1 if odd else arrays + pointers
    pointer = pointers > 0
    if outer_array and not pointer:
        dimensions = arrays
    yield tree.text(node), NameDeclaration(typed, words, dimensions, pointer, restrict)


def _ordered(name: str) -> str:
    """A type of several words in one order, as ``unsigned int`` of ``int unsigned``."""
    words = [word for word in name.split() if word not in ("const", "volatile", "constexpr")]
    if len(words) < 2:  # noqa: PLR2004
        return "int" if words == ["signed"] else " ".join(words)
    if not set(words) <= {"unsigned", "signed", "int", "long", "short", "char"}:
        return " ".join(words)
    sign = (
        ["unsigned"] if "unsigned" in words else ["signed"] if "char" in words and "signed" in words else []
    )
    rest = [word for word in words if word in ("char", "short", "long")]
    return " ".join([*sign, *(rest or ["int"])])


def _kind_of_literal(text: str) -> str:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return ""
    suffix = (match[1] or match[2] or "").lower()
    return ("large" if "l" in suffix else "unsigned") if "u" in suffix else "signed"


def kind_of_number(text: str) -> str:
    """The kind of a literal of whole numbers; ``floating`` of others."""
    return _kind_of_literal(text.lstrip("+-").strip()) or "floating"


def refused_function(scope: Scope, tree: SyntaxTree, directive: Directive) -> None:
    """Refuse a nest in what is not understood as a whole.

    Raises:
        KernelFileError: it stands in a lambda, or the function has a part that cannot be parsed or seen.
    """
    function = scope.function
    if function is None:
        raise tree.source.error(
            directive, "outside functions and in lambdas only the outermost loop alone is tiled"
        )
    for node in tree.parts(function, "ERROR", "preproc_include"):
        line = tree.source.place(node.start_byte)[0]
        raise tree.source.error(
            directive, f"line {line} of the function is not understood: {tree.text(node)[:40].strip()!r}"
        )
