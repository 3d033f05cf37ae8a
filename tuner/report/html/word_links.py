"""Words of reports that need an explanation: links in sentences, and a panel that explains them."""

import re
from collections.abc import Iterable

from tuner.report.html.elements import Markup, element, joined
from tuner.report.html.panels import panel

MEANINGS = {
    "round": "every workload of a trial once, all started together; a trial's time is that of a round",
    "contender": "a trial that may have the lowest cost when the search has ended; it is measured again",
    "tie": (
        "contenders, or trials that were measured once, whose costs cannot be told apart; the answer is the"
        " fastest of them"
    ),
    "near": "of trials that were measured once: too close to the answer to be told apart",
    "net of idle": (
        "of joules: without those that the idle GPU would have taken at the same clock in the same time"
    ),
    "sensor's gain": (
        "the factor between what a sensor shows and the true power, some percent on every board; intervals do"
        " not contain it, and ratios on one board are free of it"
    ),
    "restored": (
        "of an array that a kernel changes in place: its input is copied back behind every run, and times and"
        " joules include the copies"
    ),
    "modelled": "computed by a model; no GPU was measured",
    "recorded": "measured earlier, and replayed from a file",
}
"""As in ``docs/glossary.md``."""
_LINKED = re.compile(r"^(tie|near|restored)(?=:)|\b(net of idle|sensor's gain)\b")


def with_links(sentences: Iterable[str]) -> list[Markup]:
    """Sentences in which the first word that is not everybody's leads to its explanation."""
    return [_linked(sentence) for sentence in sentences]


def _linked(sentence: str) -> Markup:
    found = _LINKED.search(sentence)
    if found is None:
        return joined((sentence,))
    link = element("a", found.group(), href=f"#{_anchor(found.group())}")
    return joined((sentence[: found.start()], link, sentence[found.end() :]))


def _anchor(word: str) -> str:
    return f"word-{re.sub('[^a-z]+', '-', word)}"


def words_panel() -> Markup:
    """What the words mean."""
    rows = [
        joined((element("dt", word, id=_anchor(word)), element("dd", meaning)))
        for word, meaning in MEANINGS.items()
    ]
    return panel("Words", element("dl", *rows), wide=True, id_="words")
