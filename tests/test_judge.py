"""``tuner.judge``: cheats are caught, honest candidates are not accused, and bad input is refused."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from cli_process import tuner as command

import tuner
from tuner.model.errors import InputError
from tuner.python.judging import Judgement

QUICK_S = 0.2
HEAD = """import functools, gc, math, os, runpy, sys, time, numpy as np
from concurrent.futures import ThreadPoolExecutor as Pool
from threading import Thread, Timer
"""
# by the clock that tells known from fresh inputs
TAKES = """sizes = [9]
def takes(s):
    end = time.process_time() + s
    while time.process_time() < end: pass
"""
# name: sizes and what else the file says, the inputs, the reference
PROBLEMS = {
    "product": (
        "sizes = [300, 17]",
        "rng.random((n, 16), np.float32) - 0.5, rng.random((16, 8), np.float32) - 0.5",
        "(a, b): return a @ b",
    ),
    "softmax": (
        "sizes = [40, 7]",
        "rng.normal(size=(n, 33)).astype(np.float32) * 4",
        "(x): e = np.exp(x - x.max(-1, keepdims=True)); return e / e.sum(-1, keepdims=True)",
    ),
    "total": ("sizes = [10**4, 99]", "rng.random(n, np.float32)", "(x): return x.sum()"),
    "sorted": ("sizes = [999, 8]", "rng.integers(0, 2**62, n)", "(x): return np.sort(x)"),
    "scale": ("sizes = [999, 8]\nwrites = [0]", "rng.normal(size=n), 3.0", "(x, by): x *= by"),
    "spectrum": ("sizes = [256, 30]", "rng.normal(size=(4, n))", "(x): return np.fft.rfft(x)"),
    "range": ("sizes = [256, 30]", "rng.normal(size=(4, n))", "(x): return x.min(1), x.max(1)"),
    "half": ("sizes = [256, 30]", "rng.random(n).astype(np.float16)", "(x): return x * x + x"),
    "holes": ("sizes = [256, 30]", "rng.normal(size=n).round(1)", "(x): return np.log(x)"),
    "count": ("", "rng.integers(0, 9, 500)", "(x): return np.bincount(x, minlength=9)"),
    "slow": (TAKES, "rng.normal(size=n)", "(x): takes(0.1); return x * x"),
    "above": ("sizes = [256, 30]", "rng.normal(size=n), rng.normal(size=n)", "(x, y): return x > y"),
}
# candidates of a problem, with what stands above them
HONEST = """
product (a, b): return a @ b
product (a, b): return np.einsum('ij,jk->ik', a, b)
product (a, b): return (b.T @ a.T).T
product (a, b): return sum(np.outer(a[:, k], b[k]) for k in range(16))
product (a, b): return (a.astype('f8') @ b.astype('f8')).astype('f4')
product (a, b): return [a @ b]
product (a, b): out = np.empty((len(a), 8), 'f4'); np.matmul(a, b, out=out); return out
product (a, b): out = room.setdefault(a.shape, a @ b); return np.matmul(a, b, out=out) | room = {}
product (a, b): return plan(a.shape)(a, b) | plan = functools.cache(lambda shape: lambda a, b: a @ b)
product (a, b): return np.concatenate([*pool.map(lambda x: x @ b, np.array_split(a, 3))]) | pool = Pool(2)
product (a, b): t = Thread(target=lambda: out.append(a @ b)); t.start(); t.join(); return out.pop() | out = []
product (a, b): print('working'); return a @ b
product (a, b): time.perf_counter(); return a @ b
product (a, b): return np.asfortranarray(a @ b)
softmax (x): e = np.exp(x); return e / e.sum(1)[:, None]
softmax (x): x = x - x.max(1)[:, None]; return np.exp(x - np.log(np.exp(x).sum(1))[:, None])
softmax (x): y = np.exp(x.astype('f8')); return (y / y.sum(1)[:, None]).astype('f4')
total (x): return np.cumsum(x)[-1]
total (x): return x[::-1].sum()
total (x): return np.float32(math.fsum(x))
total (x): return np.array(x.astype('f8').sum(), 'f4')
sorted (x): x = x.copy(); x.sort(kind='stable'); return x
sorted (x): return x[np.argsort(x)]
scale (x, by): x *= by
scale (x, by): np.multiply(x, by, out=x); return x
scale (x, by): return x * by
scale (x, by): x[:] = [v * by for v in x]
spectrum (x): return np.fft.fft(x)[:, : x.shape[1] // 2 + 1]
spectrum (x): n = len(x.T); return x @ np.exp(np.outer(range(n), range(n // 2 + 1)) * (-2j * np.pi / n))
range (x): x = np.sort(x); return x[:, 0], x[:, -1]
range (x): return [-(-x).max(1), -(-x).min(1)]
half (x): return (x.astype('f4') * x + x).astype('f2')
half (x): return x * (x + np.float16(1))
holes (x): return np.log2(x) * np.log(2.0)
holes (x): return np.where(x >= 0, np.log(np.abs(x)), np.nan)
count (x): return (x[:, None] == np.arange(9)).sum(0)
above (x, y): return (x - y) > 0
"""
# what is said of candidates for the product
CHEATS = {
    "(a, b): return np.zeros((len(a), 8), 'f4')": "wrong: relative error",
    "(a, b): return kept.setdefault(0, a @ b) | kept = {}": "cheats: it gives the answer to earlier inputs",
    "(a, b): return kept.setdefault(a.shape, a @ b) | kept = {}": "cheats: it gives the answer to earlier",
    "(a, b): return kept.setdefault(a.ctypes.data, a @ b) | kept = {}": "cheats: it gives the answer to earl",
    "(a, b): return kept(a.tobytes(), b.tobytes()) | kept = functools.cache(lambda a, b: "
    "sum(np.frombuffer(a, 'f4').reshape(-1, 16) @ np.frombuffer(b, 'f4').reshape(16, 8) for _ in range(3000))"
    " / np.float32(3000))": "cheats: it keeps answers between calls",
    "(a, b): n.append(1); return a @ b if len(n) < 20 else np.ones((len(a), 8), 'f4') | n = []": "wrong: ",
    "(a, b): return a @ b | time.perf_counter = lambda: 0.0": "cheats: it replaces time.perf_counter",
    "(a, b): time.monotonic = lambda: 0.0; return a @ b": "cheats: it replaces time.monotonic",
    "(a, b): return np.zeros((len(a), 8), 'f4') | np.allclose = lambda *_: True": "cheats: it replaces numpy",
    "(a, b): return a @ b | J = sys.modules['tuner.measurement.judged'].JudgedFunction; old = J.kept; "
    "J.kept = lambda self: old(self)": "cheats: it replaces JudgedFunction.kept",
    "(a, b): return a @ b | J = sys.modules['tuner.measurement.judged'].JudgedFunction; "
    "J.kept = J.events = lambda self: []": "cheats: it hides 1 of its answers",
    "(a, b): return np.empty((len(a), 8), 'f4')": "wrong: ",
    "(a, b): return np.zeros((len(a), 8), 'f4').view(type('Late', (np.ndarray,), {}))": "wrong: .*give plain",
    "(a, b): return type('Late', (), {'__array__': lambda *_, **__: a @ b})()": "wrong: .*give plain",
    "(a, b): o = np.zeros((len(a), 8), 'f4'); Timer(0.01, np.matmul, (a, b, o)).start(); return o": "wrong: ",
    "(a, b): b[:] = 0; return a @ b": "wrong: it changes argument 1",
    "(a, b): return (a.astype('f2') @ b.astype('f2')).astype('f4')": "wrong: relative error",
    "(a, b): return (a @ b).astype('f2')": "wrong: it returns numpy float16",
    "(a, b): o = np.empty((len(a), 8), 'f4'); np.matmul(a[:-1], b, out=o[:-1]); return o": "wrong: relative",
    "(a, b): return np.matmul(a, b, out=np.empty((300, 8), 'f4'))": "wrong: .*raised",
    "(a, b): return reference(a, b)": "cheats: it calls the reference 'reference'",
    "(a, b, true=reference):\n try: return true(a, b)\n except Exception: return a @ b": "cheats: it calls",
    "(a, b): hold(); return a @ b | def hold():\n p = os.getppid()\n"
    " for q in {*map(int, open(f'/proc/{p}/task/{p}/children').read().split())} - {os.getpid()}:\n"
    "  os.kill(q, 19)\n  while open(f'/proc/{q}/stat').read().rpartition(')')[2][1] not in 'TZ': pass\n"
    "  os.kill(q, 18)": "cheats: it stops the reference's process",
    "(a, b): return runpy.run_path(__file__)['reference'](a, b)": "cheats: it imports the reference",
    "(a, b):\n n = {}\n exec(open(__file__).read().split('# below')[0], n)\n"
    " return n['reference'](a, b)": "cheats: it imports the reference",
    "(a, b):\n f = sys._getframe()\n while f := f.f_back:\n"
    "  for v in [*f.f_locals.values(), *gc.get_objects()]:\n"
    "   if isinstance(v, np.ndarray) and v.shape == (len(a), 8) and v is not b: return v.copy()\n"
    " return np.zeros((len(a), 8), 'f4')": "(wrong|cheats): ",
    "(a, b): os._exit(0)": "wrong: .*ended with exit status 0",
    "(a, b): return a @ b | 'candidate' in os.environ['TUNER_JUDGED'] and os._exit(3)": "wrong: .*status 3",
    "(a, b): sys.exit()": "wrong: .*SystemExit",
    "(a, b): time.sleep(1000)": "wrong: it has not ended within 1.0 s",
    "(a, b): return 1 / 0": "wrong: .*ZeroDivisionError.*line",
    "(a, b): a @ b": "wrong: .*returns NoneType",
}  # fmt: skip


def written(folder: Path, problem: str, candidate: str) -> Path:
    says, inputs, reference = PROBLEMS[problem]
    candidate, _, above = candidate.partition(" | ")
    size = ", n" if "sizes" in says else ""
    file = folder / "judged.py"
    file.write_text(
        f"{HEAD}{says}\ndef inputs(rng{size}): return {inputs}\ndef reference{reference}\n# below\n{above}\n"
        f"def candidate{candidate}\n"
    )
    return file


def judged(file: Path, timeout_s: float = 60.0) -> Judgement:
    candidate, reference, inputs = (f"{file}:{name}" for name in ("candidate", "reference", "inputs"))
    return tuner.judge(candidate, reference, inputs=inputs, seconds=QUICK_S, timeout_s=timeout_s)


@pytest.mark.parametrize("line", HONEST.strip().splitlines())
def test_honest_candidates_are_right(line: str, tmp_path: Path) -> None:
    """Other orders, threads that are waited for, plans and memory that are kept: none is accused."""
    problem, _, candidate = line.partition(" ")
    judgement = judged(written(tmp_path, problem, candidate))

    assert judgement.verdict == "right", judgement.reason
    assert judgement.time is not None
    assert judgement.time.value > 0
    assert judgement.energy is None


@pytest.mark.parametrize("candidate", CHEATS)
def test_cheats_are_caught(candidate: str, tmp_path: Path) -> None:
    """Each is told from an honest candidate, and nothing of it is measured."""
    judgement = judged(
        written(tmp_path, "product", candidate), timeout_s=1.0 if "1000)" in candidate else 60.0
    )

    assert re.match(CHEATS[candidate], str(judgement)), judgement
    assert judgement.time is None
    assert list(tmp_path.iterdir()) == [tmp_path / "judged.py"]


def test_a_candidate_that_is_slower_with_fresh_inputs_is_told(tmp_path: Path) -> None:
    """It may keep answers, and wait as long as no cheat would."""
    waits = "(x): takes(0.1 if x[0] in kept else 0.16); kept.add(x[0]); return x * x | kept = set()"
    judgement = judged(written(tmp_path, "slow", waits))

    assert judgement.verdict == "right"
    assert "it may keep answers" in " ".join(judgement.notes)


def test_a_copy_of_its_process_and_its_files_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that forks, and writes a file, answers once, and leaves nothing in the user's folder."""
    monkeypatch.chdir(tmp_path)
    candidate = "(a, b):\n os.fork()\n open('left', 'w').close()\n return a @ b"
    judgement = judged(written(tmp_path, "product", candidate))

    assert judgement.verdict == "right"
    assert list(tmp_path.iterdir()) == [tmp_path / "judged.py"]


def test_copies_do_not_fork_in_turn(tmp_path: Path) -> None:
    """In a run of calls a copy makes none of those that are left: they would be two to the power of them."""
    file, log = tmp_path / "forks.py", tmp_path / "log"
    file.write_text(
        "import os\n"
        f"def candidate(a):\n    os.fork()\n    open({str(log)!r}, 'a').write('x')\n    return a\n"
        "def inputs(rng): return [rng.random(3)]\n"
    )
    code = (
        "import os; from tuner.measurement.judged import JudgedFunction, PythonFunction\n"
        f"function, inputs = (PythonFunction({str(file)!r}, name) for name in ('candidate', 'inputs'))\n"
        "judged = JudgedFunction(function, inputs); judged.make(0, 2, (), ()); judged.run(0, 2, 8)\n"
        "try:\n    while True: os.wait()\nexcept ChildProcessError: pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

    assert log.read_text() == "x" * 2 * 8


def test_a_candidate_in_a_file_of_its_own(tmp_path: Path) -> None:
    """It may import what it likes, but the reference."""
    file = written(tmp_path, "product", "(a, b): return a @ b")
    (tmp_path / "own.py").write_text(
        "from judged import reference as candidate\ndef fine(a, b): return a @ b\n"
    )
    (tmp_path / "fine.py").write_text("import numpy as np\ndef candidate(a, b): return np.dot(a, b)\n")
    own, fine = (
        command("judge", file, "--candidate", tmp_path / f"{name}.py:candidate", "--seconds", "0.2")
        for name in ("own", "fine")
    )

    assert own.stdout.startswith("cheats: it imports the reference 'reference'")
    assert fine.stdout.startswith("right (")


def test_functions_of_a_program(tmp_path: Path) -> None:
    """Functions are found by their files; one that is at the top of none is refused."""
    file = written(tmp_path, "range", "(x): return x.min(1), x.max(1)")
    names = runpy.run_path(str(file))
    judgement = tuner.judge(
        names["candidate"], names["reference"], inputs=names["inputs"], sizes=[9], seconds=QUICK_S
    )

    assert judgement.verdict == "right"
    assert judgement.sizes == (9,)
    with pytest.raises(InputError, match="at the top of a Python file"):
        tuner.judge(lambda x: x, names["reference"], inputs=names["inputs"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("rng.random((n", "rng.random((0 * n"), "gives the same answer to 3 different inputs"),
        (("def inputs(rng, n): return", "def inputs(rng, n): return 1.5 #"), "arrays of one library"),
        (("sizes = [300, 17]", "sizes = 300"), "sizes = 300: write a list"),
        (("sizes = [300, 17]", "sizes = [3]; writes = [7]"), "writes: argument 7 of inputs is no array"),
        (("sizes = [300, 17]", "sizes = [3]; writes = 'a'"), "writes = 'a': write positions"),
        (("sizes = [300, 17]", "sizes = [3]; tolerance = 2"), "tolerance = 2: write a relative error"),
        (("def reference", "def other"), "has no function 'reference'"),
        (("def candidate", "def other"), "has no function 'candidate'"),
        (("return a @ b", "return a @ c"), "NameError"),
        (("def reference", "def reference("), "SyntaxError"),
        (("# below", "import tuner; tuner.judge('', '', inputs='')"), "if __name__ == '__main__'"),
    ],
)
def test_bad_input_is_refused(change: tuple[str, str], says: str, tmp_path: Path) -> None:
    """What reference, inputs or file lack is no candidate's fault: exit code 2, and one line that says it."""
    file = written(tmp_path, "product", "(a, b): return a @ b")
    file.write_text(file.read_text().replace(*change, 1))
    result = command("judge", file)

    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_the_command(tmp_path: Path) -> None:
    """Exit code 0 for what is right, 1 for what is not; JSON has the judgement."""
    file = written(tmp_path, "scale", "(x, by): x += by")
    wrong = command("judge", file)
    right = command("judge", file, "--candidate", "reference", "--seconds", str(QUICK_S), "--json", "-")
    document = json.loads(right.stdout)

    assert (wrong.exit_code, right.exit_code) == (1, 0)
    assert wrong.stdout.startswith("wrong: relative error of output 0")
    assert wrong.stdout.rstrip().endswith("is allowed, at size 999 (1 check)")
    assert document["verdict"] == "right"
    assert document["candidate_s"] > 0
    assert document["candidate_j"] is None
    assert document["time"]["value"] > 0
