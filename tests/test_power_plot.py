"""The picture of a power trace."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from tuner.model.errors import InputError
from tuner.report import power_tables
from tuner.report.power_tables import FORMATS, Picture, draw

TIMES = np.arange(-1.0, 3.0, 0.02)
RAW = np.where((TIMES > 0) & (TIMES < 2), 400.0, 100.0)
PICTURE = Picture(
    title="nvml-power-ring (gpu) of a GPU\nsleep 2: 800.0 ± 1.0 J",
    times_s=TIMES,
    raw_w=RAW,
    corrected_w=RAW + 1.0,
    correction="lag, C = 17 ms",
    age_s=0.0,
    duration_s=2.0,
    idle_w=100.0,
    net="600 ± 2 J",
    counter=(401.0, "nvml-energy-counter: 802.0 ± 0.5 J"),
    marks=[(0.1, "phase one"), (1.0, "phase two")],
)


def drawn(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> Figure:
    """The figure that would be saved."""
    kept: list[Figure] = []
    monkeypatch.setattr(power_tables, "save_figure", lambda figure, _path: kept.append(figure))
    draw(picture, Path("kept.png"))
    return kept[0]


def labels(figure: Figure, marks: set[str]) -> list[Text]:
    return [text for text in figure.axes[0].texts if text.get_text() in marks]


def legend_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_written(suffix: str, tmp_path: Path) -> None:
    """Each kind of file that is offered can be made, and again gives the same."""
    for name in ("one", "two"):
        draw(PICTURE, tmp_path / f"{name}{suffix}")

    assert (tmp_path / f"one{suffix}").stat().st_size > 5000
    if suffix != ".pdf":  # which has a date
        ids = [(tmp_path / f"{name}{suffix}").stat().st_size for name in ("one", "two")]
        assert ids[0] == ids[1]


def test_everything_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Axes have units, the legend names every curve, the title says what was read."""
    figure = drawn(PICTURE, monkeypatch)
    axes = figure.axes[0]
    legend = legend_of(figure)

    assert "(s)" in axes.get_xlabel()
    assert "(W)" in axes.get_ylabel()
    assert "as the sensor shows it" in legend
    assert "corrected (lag, C = 17 ms; overshoots at steps)" in legend
    assert "above idle: 600 ± 2 J" in legend
    assert "idle, 100 W" in legend
    assert "nvml-energy-counter: 802.0 ± 0.5 J" in legend
    assert "nvml-power-ring" in figure.get_suptitle()
    assert len(labels(figure, {"phase one", "phase two"})) == 2


def test_a_long_legend_takes_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """The curves have the width of the picture however long the words below them are."""
    widths = []
    for text in ("counter", "a counter with a long name: mean of 28,958.60 ± 0.53 J"):
        figure = drawn(replace(PICTURE, counter=(401.0, text), correction=f"{text}, calibrated"), monkeypatch)
        widths.append(figure.axes[0].get_position().width)

    assert widths[0] == pytest.approx(widths[1])
    assert widths[0] > 0.9


def test_an_uncorrected_reading_has_one_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where correction changes nothing there is no second curve, and the first says so."""
    picture = replace(PICTURE, corrected_w=None, correction="shows power as it is", counter=None)

    assert legend_of(drawn(picture, monkeypatch))[1] == "as the sensor shows it (shows power as it is)"


@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(marks=st.lists(st.tuples(st.floats(0.0, 2.0), st.text("il MW", max_size=40)), max_size=20))
def test_labels_do_not_overlap(marks: list[tuple[float, str]]) -> None:
    """However many marks there are, and whatever they are called, no label covers another."""
    marks = [(time_s, f"mark {label.strip()}") for time_s, label in sorted(marks)]
    with pytest.MonkeyPatch.context() as patch:
        figure = drawn(replace(PICTURE, marks=marks), patch)
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()  # type: ignore[no-untyped-call]  # matplotlib's own
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]  # matplotlib's own
    shown = labels(figure, {label for _, label in marks})
    boxes = [text.get_window_extent(renderer) for text in shown]

    for index, box in enumerate(boxes):
        assert box.x0 >= 0
        for other in boxes[:index]:
            assert not (
                min(box.x1, other.x1) - max(box.x0, other.x0) > 1
                and min(box.y1, other.y1) - max(box.y0, other.y0) > 1
            )
    if marks:
        assert shown


def test_labels_are_plain_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A label with signs that mean formulas to the plotter is shown as it is."""
    picture = replace(PICTURE, marks=[(0.5, "cost: $5 or $x^2$ _a_"), (0.7, "a $ b")], title="$HOME & $x$")
    draw(picture, tmp_path / "signs.png")

    shown = labels(drawn(picture, monkeypatch), {"cost: $5 or $x^2$ _a_"})
    assert all(not text.get_parse_math() for text in shown)
    assert shown


def test_spikes_do_not_hide_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few corrected samples far off do not set the scale; what the sensor read does."""
    corrected = RAW.copy()
    corrected[10] = 1e6
    low, high = drawn(replace(PICTURE, corrected_w=corrected), monkeypatch).axes[0].get_ylim()

    assert low <= 0.0
    assert 400.0 < high < 100_000.0


def test_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib the message names the extra that brings it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'gpu-tuner\[plot\]'"):
        power_tables.need_matplotlib()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """The file is named."""
    with pytest.raises(InputError, match="nowhere"):
        draw(PICTURE, tmp_path / "nowhere" / "a.png")
