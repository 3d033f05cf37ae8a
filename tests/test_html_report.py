"""``tuner report``: pages in one file that say what the text report says; those that are shipped repeat."""

import base64
import gzip
import hashlib
import json
import re
import shlex
from datetime import datetime, timezone
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cli_process import SMALL, tuner
from cli_process import document as command_document
from report_documents import RECORDED, TX1, run_document, run_trial
from report_pages import MARKUP, odd_runs, ordinary

from tuner.report.answer import cost_line
from tuner.report.details import repeating_command
from tuner.report.html.charts import effects_of
from tuner.report.html.markup import trial_columns
from tuner.report.html.report import asset, notebook_frame, pair_page, run_page
from tuner.report.html.run_section import MEANINGS
from tuner.report.rows import CLOCK, ENERGY, POWER, POWER_LIMIT, TIME
from tuner.report.run_report import done_line
from tuner.report.trials_table import ranked_trials

NOW = datetime(2026, 11, 26, tzinfo=timezone.utc)
ECHARTS = Path(__file__).parent.parent / "tuner/report/html/echarts"
GLOSSARY = Path(__file__).parent.parent / "docs/glossary.md"
ODD = dict(odd_runs())


class Page(HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + data)
        elif self._within == "style":
            self.elements.append(("style-text", {"text": data}))
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(next(text for kind, text in self.scripts if kind == "application/json")))


@pytest.mark.parametrize("kind", ODD)
def test_odd_runs_have_a_page_that_runs_only_its_own_scripts(kind: str) -> None:
    """Every page has two scripts whose hashes its policy names, no handler, and nothing to fetch."""
    page = Page(run_page(ODD[kind], NOW))

    policy = next(a["content"] or "" for t, a in page.elements if a.get("http-equiv"))
    scripts = [text for kind, text in page.scripts if kind != "application/json"]
    style = next(a["text"] or "" for t, a in page.elements if t == "style-text")
    assert len(scripts) == 2
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    for text in (*scripts, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    for tag, attributes in page.elements:
        assert not {"src", "style"} & attributes.keys(), tag
        assert (attributes.get("href") or "#").startswith("#"), "links stay within the page"
        assert not [name for name in attributes if name.startswith("on")]


def test_links_of_words_lead_to_the_meanings_of_the_glossary() -> None:
    """Each link has its place in the page, and the page explains words as the documentation does."""
    page = Page(run_page(ordinary(notices=["restored: copies of its input"]), NOW))
    places = {one["id"] for _, one in page.elements if one.get("id")}
    links = [(one["href"] or "").removeprefix("#") for tag, one in page.elements if tag == "a"]

    assert {"word-restored", "word-net-of-idle", "word-sensor-s-gain"} <= set(links) <= places
    for word, meaning in MEANINGS.items():
        assert f"| {word} | {meaning} |" in GLOSSARY.read_text(encoding="utf-8")


def test_a_phone_shows_time_and_energy_first() -> None:
    """On 390 px figures stand in two columns; in the table of trials only the rank stands before them."""
    style, trials = asset("style.css"), asset("trials.js")
    narrow = style.partition("@media (max-width: 480px) {")[2].partition("\n}")[0]

    assert ".figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr))" in narrow
    places = [trials.index(f'title: "{name}"') for name in ("rank", "known for", "trial")]
    assert places[0] < trials.index("of run.columns.filter") < places[1] < places[2]


def test_names_that_are_markup_stay_text() -> None:
    """Names, notices, options and error texts are shown as they are."""
    page = Page(run_page(ODD["markup"], NOW))

    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert MARKUP in page.text
    assert page.data["runs"][0]["trials"]["workloads"][0]["name"] == MARKUP


def test_sentences_are_those_of_the_text_report() -> None:
    """Gains, cost and what was left out come from the same functions."""
    document = ordinary(notices=["done: the rest is expected to gain less than 0.5 %"])
    page = Page(run_page(document, NOW))

    assert done_line(document) in page.text
    assert cost_line(document, verbose=True) in page.text
    assert "timeout" in page.text
    assert "trials repeat to ± 0.4 % in energy" in page.text


def test_effects_are_of_trials_that_differ_in_one_tunable_alone() -> None:
    """Of trials that differ in two, nothing is told but how often a value was tried."""
    apart = [run_trial({"k:N=1": {"P": p, "L": p}}, 1e-3, 0.5 + p) for p in (1, 2, 4)]
    document = run_document(apart, fastest=0)

    found = effects_of(document, ranked_trials(document))

    assert found.known == []
    assert found.tried == ["P: 1 (1), 2 (1), 4 (1)", "L: 1 (1), 2 (1), 4 (1)"]


def test_effects_are_excess_over_the_best_value() -> None:
    """In each group of trials alike but for a tunable the best value costs nothing more."""
    costs = {(1, "a"): 1.0, (2, "a"): 1.1, (1, "b"): 2.0, (2, "b"): 1.0}
    trials = [run_trial({"k:N=1": {"P": p, "S": s}}, 1e-3, cost) for (p, s), cost in costs.items()]
    document = run_document(trials, fastest=0)

    found = effects_of(document, ranked_trials(document))

    told = {
        (one.tunable, one.value): (round(one.least, 6), round(one.most, 6), one.groups) for one in found.known
    }
    assert told["P", 1] == (0.0, 1.0, 2)
    assert told["P", 2] == (0.0, 0.1, 2)
    assert told["S", "b"] == (0.0, 1.0, 2)
    assert found.tried == []


def test_columns_hold_the_trials() -> None:
    """Numbers come back to five digits, settings and texts as they were, in few bytes."""
    document = ordinary()
    found = trial_columns(document, document["trials"])
    columns = json.loads(gzip.decompress(base64.b64decode(found["columns"])))

    *times, failed = columns["time"]["values"]
    assert failed is None
    assert [value * columns["time"]["scale"] for value in times] == pytest.approx(
        [trial["time_s"] for trial in document["trials"][:-1]], rel=5e-5
    )
    tunable = next(one for one in found["workloads"][0]["tunables"] if one["name"] == "wide")
    assert [tunable["values"][place] for place in columns["tunable 0 wide"]] == [
        trial["configurations"]["scan:N=64"]["wide"] for trial in document["trials"]
    ]
    assert found["statuses"] == ["ok", "timeout"]
    assert found["details"] == ["", "ran for 60 s"]


def test_true_and_one_are_two_values() -> None:
    """A boolean and a number that are equal in Python stay apart."""
    trials = [run_trial({"k:N=1": {"P": value}}, 1e-3, 0.5) for value in (True, 1)]
    found = trial_columns(run_document(trials), trials)

    assert len(found["workloads"][0]["tunables"][0]["values"]) == 2


def test_what_a_trial_is_known_for_is_drawn() -> None:
    """Answer, default, contenders, the tie, and what the search saw reach the scripts."""
    run = Page(run_page(ordinary(), NOW)).data["runs"][0]

    assert run["named"]["answer"] == 0
    assert run["named"]["default"] == 1
    assert (run["contenders"], run["tied"]) == ([0, 1], [0])
    assert run["searched"].keys() == {"0", "1"}
    assert [one["name"] for one in run["power"]][1] == "trial 2: default"


def test_the_table_of_all_trials_has_the_columns_of_the_text_report() -> None:
    """Names and units come from one place."""
    columns = Page(run_page(ordinary(), NOW)).data["runs"][0]["columns"]

    assert [(one["title"], one["unit"]) for one in columns] == [
        (column.name, column.unit) for column in (TIME, ENERGY, POWER, CLOCK, POWER_LIMIT)
    ]


def test_captions_name_only_the_marks_that_are_drawn() -> None:
    """Rings, ties and failures are told of where there are some; intervals of all only up to 400 trials."""
    trials = [run_trial({"k:N=1": {"P": p}}, 1e-3 + 1e-6 * p, 0.5 + p) for p in range(401)]
    few = Page(run_page(run_document(trials[:400], contenders=[], tied=[]), NOW)).text
    many = Page(run_page(run_document(trials, contenders=[], tied=[1, 2, 3]), NOW)).text
    repeated = Page(run_page(ordinary(), NOW)).text

    assert "Each valid trial with its 95 % intervals;" in few
    assert "Each valid trial; the line" in many
    assert "These and the named ones have their 95 % intervals" in many
    assert "Filled: the 3 that tie; a rule chooses the answer" in many
    for mark in ("Rings: contenders", "Triangles: failed", "Filled: "):
        assert mark not in few
    assert "Rings: contenders" in repeated
    assert "Triangles: failed trials" in repeated


def test_flags_of_every_workload_stand_in_the_page() -> None:
    """Who has the page alone can build: flags to copy, the default's values, and what differs marked."""
    document = ordinary("scan:N=64", "fft:N=2")
    document["default"] = document["trials"][1]
    page = Page(run_page(document, NOW))

    assert page.text.count("-DP=1 -Dload=direct -Dwide=1") == 2
    assert [tag for tag, _ in page.elements].count("mark") == 4, "P and wide of both workloads"
    assert "Where run 12 is stored, this command writes a header with all of them" in page.text


def test_what_a_lower_clock_saves_is_told_or_how_to_measure_it() -> None:
    """A run at one clock names the command; a recording names one for a GPU, as it has no other clocks."""
    measured, recorded = ordinary(objective="time"), ordinary(device=RECORDED)

    for document, where in ((measured, " --device cuda:0"), (recorded, "")):
        text = Page(run_page(document, NOW)).text
        assert f"tuner run scan:N=64{where} --objective energy --clocks auto" in text


def test_a_gain_has_a_colour_only_where_it_is_certain() -> None:
    """Time and energy stand first, then the changes; one within its interval is neither gain nor loss."""
    against = {"slowdown": 0.02, "slowdown_interval": 0.001, "energy_saving": 0.01, "turn_by_turn": True}
    document = ordinary(against_default={**against, "energy_saving_interval": 0.02})
    page = Page(run_page(document, NOW))
    classes = [one.get("class") for tag, one in page.elements if tag == "b"][:4]

    assert re.search(r"time of a round \S+ ± \S+ m?J energy of a round, 95 % -1.0 ±", page.text)
    assert "-1.0 ± 2.0 % energy against the default, 95 % +2.0 ± 0.1 % time against the default" in page.text
    assert classes == [None, None, None, "more"]


def test_two_runs_stand_side_by_side_with_ratios() -> None:
    """Changes have their intervals; of other workloads there are none."""
    one, other = ordinary(run=1), ordinary(run=2)
    other["best"] = {**other["best"], "energy_j": 2 * one["best"]["energy_j"]}
    other["best"]["energy_j_uncertainty"] = 1e-3 * other["best"]["energy_j"]
    page = Page(pair_page(one, other, ("run 1", "run 2"), NOW))

    energy = next(row for row in page.data["ratios"] if row["name"] == "energy")
    assert energy["change"] == pytest.approx(1.0)
    assert energy["interval"] == pytest.approx(1.96 * 2**0.5 * 1e-3 * 2)
    assert len(page.data["runs"]) == 2
    assert "B against A" in page.text
    other_work = Page(pair_page(one, ordinary("fft:N=2"), ("run 1", "run 2"), NOW))
    assert other_work.data["ratios"] == []


def test_measured_and_modelled_runs_are_told_apart() -> None:
    """Beside each other, each run says what kind of numbers it has, and its points do."""
    page = Page(pair_page(ordinary(run=1), ordinary(run=2, device=TX1), ("run 1", "run 2"), NOW))

    assert [run["label"] for run in page.data["runs"]] == ["", "modelled"]
    assert page.text.count("a simulated device made these numbers") == 1


def test_a_notebook_shows_the_same_page_in_a_frame() -> None:
    """The frame holds the page unchanged, and its scripts are kept from the notebook."""
    frame = notebook_frame(ordinary())
    attributes = re.fullmatch(r'<iframe srcdoc="([^"]*)" ([^>]*)></iframe>', frame)

    assert attributes is not None
    assert 'sandbox="allow-scripts"' in attributes[2]
    assert 'data-panel="convergence"' in unescape(attributes[1])


def test_the_command_repeats_the_run() -> None:
    """It names workloads with batches, device, and the options that are not the defaults."""
    document = ordinary(
        batch=4096,
        objective="energy",
        max_slowdown=0.05,
        clocks="998,921",
        seed=3,
        settings={"min_occupancy": 0.5, "energy_precision": 0.01, "window_s": 0.9, "joules": True},
    )
    assert repeating_command(document) == (
        "tuner run scan:N=64,batch=4096 --device cuda:0 --objective energy --max-slowdown 0.05 --seed 3"
        " --clocks 998,921 --min-occupancy 0.5 --joules"
    )


def test_the_library_is_what_was_built() -> None:
    """The bundle, its licence and its notice have the hashes that ``make assets`` wrote."""
    lines = (ECHARTS / "SHA256SUMS").read_text().splitlines()

    assert [line.split()[1] for line in lines] == ["echarts.min.js", "LICENSE", "NOTICE"]
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((ECHARTS / name).read_bytes()).hexdigest() == digest
    text = (ECHARTS / "echarts.min.js").read_text()
    assert (ECHARTS / "NOTICE").read_text().strip() in text
    assert "</script" not in text


# --- the command -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one workload."""
    path = tmp_path_factory.mktemp("runs") / "tuner.db"
    for budget in ("3", "4"):
        tuner("run", *SMALL, "--budget", budget, "--database", path)
    return path


def test_reports_are_written_from_the_database(db: Path, tmp_path: Path) -> None:
    """Of the newest run, of a named one, and of two; the size is told."""
    newest, pair = tmp_path / "newest.html", tmp_path / "pair.html"

    told = tuner("report", "--database", db, "--output", newest)
    tuner("report", "1", "2", "--database", db, "--output", pair)

    assert told.exit_code == 0
    assert told.stdout == f"report: {newest} ({len(newest.read_bytes()) / 1e6:.2f} MB)\n"
    assert Page(newest.read_text()).data["runs"][0]["power"]
    assert len(Page(pair.read_text()).data["runs"]) == 2


def test_a_report_has_a_name_of_its_own(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --output it is written to this directory."""
    monkeypatch.chdir(tmp_path)
    assert tuner("report", "1", "--database", db).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run-1.html"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("7",), "run 7: there is no such run"),
        (("none.json",), "neither the number of a run"),
        (("1", "--daemon"), "--daemon: shows all answers"),
        (("1", "--output", "no/folder/x.html"), "no/folder does not exist"),
    ],
)
def test_what_cannot_be_reported_is_told(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    """Exit code 2, the reason, and no file."""
    monkeypatch.chdir(tmp_path)
    found = tuner("report", *words, "--database", db)

    assert found.exit_code == 2
    assert told in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_document_of_another_program_is_refused(tmp_path: Path) -> None:
    """A file that has the keys of a run and none of their contents is named; nothing is written."""
    wrong, out = tmp_path / "wrong.json", tmp_path / "x.html"
    keys = ("device", "objective", "workloads", "space", "best", "default", "status")
    wrong.write_text(json.dumps(dict.fromkeys(keys, 1)))

    found = tuner("report", wrong, "--output", out)

    assert found.exit_code == 2
    assert "not a document of `tuner run --json`" in found.stderr
    assert not out.exists()


# --- reports that come with the documentation -----------------------------------------------------


SHIPPED = sorted((Path(__file__).parent.parent / "docs").glob("report-*.html"))
PANELS = ("answer", "build", "settings", "left-out", "repeat")


def panel(text: str, name: str) -> str:
    """A panel of a page, without charts."""
    found = re.search(rf'<section [^>]*data-panel="{name}">.*?</section>', text, re.DOTALL)
    assert found is not None, name
    return found.group()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_command_of_a_shipped_report_repeats_it(path: Path, tmp_path: Path) -> None:
    """The same answer, gains and flags again; if only words differ, run ``benchmarks/shipped_report.py``."""
    shipped = path.read_text(encoding="utf-8")
    code = re.search("<code>(.*?)</code>", panel(shipped, "repeat"))
    assert code is not None
    _, *words = shlex.split(unescape(re.sub("<[^>]*>", "", code[1])))
    told: Any = command_document(*words, "--database", tmp_path / "runs.db")
    again = run_page(told, datetime.now(timezone.utc))

    for name in PANELS:
        assert panel(again, name) == panel(shipped, name)
