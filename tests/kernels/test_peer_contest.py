"""A peer is reported by its fastest form that answers right, and every form that was tried is recorded."""

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from benchmark_scripts import siblings_importable

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROUNDS = 22


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts import each other by bare names."""
    with siblings_importable(monkeypatch):
        yield


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def form(name: str, settings: str) -> Any:
    return module("peer_libraries").Peer(name, settings, lambda: None, lambda: None)


def contest(tried: list[Any], times: dict[str, list[float]]) -> Any:
    return module("peers").Contest("scan", 64, 4000.0, {}, {}, tried, ["bare L=128 V=1"], times)


def test_only_right_forms_enter_the_rounds() -> None:
    """A wrong form is left out however fast it is; a peer with no right form is still shown."""
    tried = module("peers").Tried
    right, wrong, refused, never = form("a", "x"), form("a", "y"), form("a", "z"), form("b", "")
    found = module("peers")._finalists(
        [
            tried(right, 2.0, 1e-9),
            tried(wrong, 1.0, 1.0),
            tried(never, 1.0, 1.0),
            tried(refused, math.inf, math.inf, "CUDA error 9"),
        ],
        allowed=1e-6,
    )
    assert found == [right, never]


def test_the_first_half_of_the_rounds_chooses_the_form() -> None:
    """What is reported has no say in what is chosen, and every form that was tried stays on record."""
    tried = module("peers").Tried
    first, second, third = form("a", "x"), form("a", "y"), form("a", "z")
    half = ROUNDS // 2
    times = {
        first.key: [1.0] * half + [4.0] * half,
        second.key: [2.0] * half + [3.0] * half,
        "bare L=128 V=1": [0.5] * ROUNDS,
    }
    rows = contest(
        [tried(first, 1.0, 0.0), tried(second, 1.5, 0.0), tried(third, math.inf, math.inf, "refused")], times
    ).peer_rows()

    assert [(row["peer"], row["form"], row["ms"]) for row in rows] == [
        ("a", "x", 4.0),
        ("bare", "bare L=128 V=1", 0.5),
    ]
    assert rows[0]["tried"] == [
        {"form": "x", "ms": 1.0, "error": 0.0},
        {"form": "y", "ms": 1.5, "error": 0.0},
        {"form": "z", "trouble": "refused"},
    ]


@pytest.mark.parametrize("n", [2**k for k in range(6, 14)])
def test_forms_of_cub_divide_their_rows(n: int) -> None:
    """No form is offered twice, and each names a row of this length; the newest parts need their version."""
    cub = module("peer_libraries")
    forms = cub.forms(n, 300500)
    assert len({(f.name, f.form) for f in forms}) == len(forms)
    log = n.bit_length() - 1
    for f in forms:
        arguments = f.function.partition("<")[2].rstrip(">").split(", ")
        assert str(n) in arguments or arguments[0] == str(log), f
    assert {f.name for f in forms} - {f.name for f in cub.forms(n, 300001)} == {"cub.DeviceSegmentedScan"}


def test_calls_say_how_the_batch_is_dealt() -> None:
    """The words that tables show."""
    calls = module("peer_libraries").Calls
    assert str(calls()) == "one call"
    assert str(calls(8, 2)) == "8 calls in a graph, 2 streams"


@dataclass(frozen=True)
class Event:
    """A mark in a stream."""

    number: int

    def record(self, chain: "Chain") -> None:
        chain.notes.append(f"{chain.ptr} records event {self.number}")


class Chain:
    """A stream of a CUDA that only notes what it is told."""

    def __init__(self, notes: list[str], number: int) -> None:
        self.notes, self.ptr = notes, number

    def begin_capture(self) -> None:
        self.notes.append("begin")

    def wait_event(self, event: Event) -> None:
        self.notes.append(f"{self.ptr} waits for event {event.number}")

    def end_capture(self) -> Any:
        self.notes.append("end")
        return SimpleNamespace(upload=lambda: None, launch=lambda: self.notes.append("launch"))


class NotingCuda:
    """As much of CuPy as graphs need."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.cuda = SimpleNamespace(Stream=self.stream, Event=self.event)
        self._streams = self._events = 0

    def stream(self, non_blocking: bool) -> Chain:
        assert non_blocking
        self._streams += 1
        return Chain(self.notes, self._streams)

    def event(self, disable_timing: bool) -> Event:
        assert disable_timing
        self._events += 1
        return Event(self._events)


def test_chunks_are_dealt_to_streams_that_begin_and_end_together() -> None:
    """A graph holds every chunk once, in turn on its streams, between a fork and a join."""
    cp, dealt = NotingCuda(), []
    run = module("peer_libraries").launched(
        cp, lambda chunk, stream: dealt.append((chunk, stream)), module("peer_libraries").Calls(4, 2)
    )

    assert dealt == [(0, 1), (1, 2), (2, 1), (3, 2)]
    assert cp.notes == [
        "begin",
        "1 records event 1",
        "2 waits for event 1",
        "2 records event 2",
        "1 waits for event 2",
        "end",
    ]
    run()
    assert cp.notes[-1] == "launch"
    assert len(dealt) == 4


def test_a_refused_call_ends_the_capture() -> None:
    """A library that cannot be captured leaves no stream in capture."""
    cp = NotingCuda()

    def refuse(chunk: int, stream: int) -> None:
        raise RuntimeError(f"chunk {chunk} on stream {stream}")

    with pytest.raises(RuntimeError, match="chunk 0 on stream 1"):
        module("peer_libraries").launched(cp, refuse, module("peer_libraries").Calls(2, 1))
    assert cp.notes[-1] == "end"


def test_a_library_says_what_it_lacks() -> None:
    """A missing library and a missing function are told apart from a call that fails."""
    vendor = module("peer_libraries").VendorLibrary
    with pytest.raises(OSError, match="libnowhere was not found"):
        vendor("libnowhere", (1,))
    libc = vendor("libc", (6,))
    with pytest.raises(RuntimeError, match="is not in this version"):
        libc.call("no_such_function")
    with pytest.raises(RuntimeError, match="abs answers 3"):
        libc.call("abs", -3)
    libc.call("abs", 0)


def test_a_library_of_a_python_package_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Packages of NVIDIA's keep libraries where the system does not look."""
    folder = tmp_path / "nvidia/cu13/lib"
    folder.mkdir(parents=True)
    libc = next(
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line
    )
    (folder / "libnowhere.so.13").symlink_to(libc)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="abs answers 3"):
        module("peer_libraries").VendorLibrary("libnowhere", (1,)).call("abs", -3)


def test_random_lengths_are_drawn_once_and_summed_up_with_their_least() -> None:
    """The same seed gives the same lengths; a line of the table names its least row, and targets missed."""
    random_lengths = module("fft_random_lengths")
    drawn = random_lengths.lengths(53)
    assert drawn == random_lengths.lengths(53) != random_lengths.lengths(54)
    assert len(set(drawn)) == 260
    assert sum(n <= 8192 for (n,) in drawn) == 200
    assert [random_lengths.largest_prime(n) for n in (1, 2, 8192, 6579, 97, 1517)] == [1, 2, 2, 43, 97, 41]
    rows = [
        {
            "N": n,
            "largest_prime": 43,
            "dtype": dtype,
            "which": which,
            "batch": 7,
            "ratio": ratio,
            "correct": correct,
        }
        for n, dtype, which, ratio, correct in (
            (100, "complex64", "full", 2.0, True),
            (6579, "complex64", "full", 0.5, True),
            (8193, "complex64", "16", 0.96, False),
        )
    ]
    short, long = random_lengths.summary(rows)
    assert short["mean"] == pytest.approx(1.0)
    assert (short["least"], short["least_of"]["N"], short["rows"], short["met"]) == (0.5, 6579, 2, False)
    assert (long["lengths"], long["met"], long["correct"]) == ("long", True, False)
    assert "6579 (prime 43), batch 7  missed" in random_lengths.table(rows)
    assert random_lengths.table(rows).endswith("  WRONG")
