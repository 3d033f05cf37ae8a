"""HTML made of elements: whatever is put into one is escaped, so that no text of a run is markup."""

import html
from collections.abc import Collection, Iterable, Sequence

from tuner.untrusted.text import plain

_EMPTY = frozenset({"meta", "input", "col"})  # elements that have no end


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: "str | Markup | None", **attributes: "str | int | bool | None") -> Markup:
    """An element.

    Args:
        tag: its name.
        children: texts, which are escaped, and elements; None is left out.
        attributes: by name, ``_`` for ``-``, with ``_`` behind a word of Python; True without a value, None
            and False left out.
    """
    named = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escaped(str(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    inner = joined(children)
    return Markup(f"<{tag}{named}>" if tag in _EMPTY else f"<{tag}{named}>{inner}</{tag}>")


def joined(children: "Iterable[str | Markup | None]") -> Markup:
    """Texts and elements behind each other."""
    return Markup("".join(one if isinstance(one, Markup) else _escaped(one) for one in children if one))


def paragraphs(sentences: Iterable[str], class_: str | None = None) -> Markup:
    """A paragraph for each sentence; its direction is that of its own text."""
    return joined(element("p", one, class_=class_, dir="auto") for one in sentences)


def listed(sentences: "Iterable[str | Markup]", class_: str | None = None) -> Markup:
    """A list of sentences; nothing where there are none."""
    items = [element("li", one, dir="auto") for one in sentences]
    return element("ul", *items, class_=class_) if items else Markup()


def cells_table(
    cells: Sequence[Sequence[str]], notes: Sequence[str] = (), texts: Collection[int] = (0,)
) -> Markup:
    """A table of cells whose first row is the heads.

    Args:
        cells: rows of equally many.
        notes: of each row, as a last column of text; empty for none.
        texts: columns that are aligned as text, the others as numbers.
    """
    rows = []
    for place, row in enumerate(cells):
        tag = "td" if place else "th"
        found = [
            element(
                tag,
                cell,
                class_="name" if column in texts else "number",
                scope=None if place else "col",
                dir="auto",
            )
            for column, cell in enumerate(row)
        ]
        if any(notes):
            found.append(element(tag, notes[place], class_="note", dir="auto"))
        rows.append(element("tr", *found))
    head, *body = rows
    table = element("table", element("thead", head), element("tbody", *body))
    return element("div", table, class_="scroll", tabindex=0)


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Names and values as a list of definitions."""
    found = [
        joined((element("dt", name, dir="auto"), element("dd", value, dir="auto"))) for name, value in pairs
    ]
    return element("dl", *found)


def _escaped(text: str) -> str:
    return html.escape(plain(text), quote=True)
