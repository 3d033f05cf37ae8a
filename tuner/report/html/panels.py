"""Panels of a page: a title, a sentence, and a chart that the scripts draw, or text."""

from tuner.report.html.elements import Markup, element, joined


def panel(
    title: str, *content: "str | Markup | None", sub: str = "", wide: bool = False, id_: str = ""
) -> Markup:
    """A panel.

    Args:
        title: its heading.
        content: what is in it.
        sub: a sentence below the heading.
        wide: as wide as the page.
        id_: by which links and tests find it.
    """
    return element(
        "section",
        element("h3", title, dir="auto"),
        element("p", sub, class_="sub", dir="auto") if sub else None,
        *content,
        class_="panel wide" if wide else "panel",
        data_panel=id_ or None,
    )


def chart(kind: str, label: str, *, height: int = 320, **options: "str | int") -> Markup:
    """Room for a chart, with room above it for its controls.

    Args:
        kind: which function of the scripts draws it.
        label: what a screen reader says of it.
        height: in CSS pixels: one of those that the style knows.
        options: that the function takes, by name.
    """
    named = {f"data_{name}": value for name, value in options.items()}
    shape = f"chart h{height}"
    box = element("div", class_=shape, role="img", aria_label=label, data_chart=kind, **named)
    return joined((element("div", class_="controls"), element("div", box, class_="scroll")))


def copyable(text: str) -> Markup:
    """Text to paste, whose lines break between words only, with a button that copies it."""
    words = [element("span", word) for word in text.split(" ")]
    spaced = [part for word in words for part in (" ", word)][1:]
    button = element("button", "copy", type="button", class_="copy", hidden=True)
    return element("div", element("code", *spaced), button, class_="paste")
