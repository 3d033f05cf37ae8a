"""Sweep files: which jobs they stand for, and what is said of wrong ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.model.errors import InputError
from tuner.report.layout import PlainConsole
from tuner.studies.reports import show_sweep
from tuner.studies.sweep import JobResult, SweepReport
from tuner.studies.sweep_file import SweepJob, parsed
from tuner.system.untrusted.reading import load_toml

ROOT = Path(__file__).parent.parent
GROUP = '[[group]]\nname = "scans"\nkernels = ["scan-lf"]\n'


SEVERAL = list(range(1, 318))


def jobs(text: str) -> tuple[SweepJob, ...]:
    return parsed(text, Path("sweep.toml")).jobs


def test_a_group_is_every_combination() -> None:
    """Kernels, sizes, objectives, devices and options are combined, those of [options] included."""
    found = jobs(
        '[options]\nbudget = 5\n[[group]]\nname = "scans"\nkernels = ["scan-lf", "scan-ks"]\n'
        'sizes = { N = [64, 128], batch = 8 }\nobjectives = ["time", "energy"]\n'
        'devices = ["sim:a100", "sim:h100"]\noptions = { seed = [1, 2, 3] }\n'
    )

    assert len(found) == len({job.key for job in found}) == 2 * 2 * 2 * 2 * 3
    assert found[0].title == "scan-lf:N=64,batch=8 time on sim:a100 --budget 5 --seed 1"
    assert found[-1].title == "scan-ks:N=128,batch=8 energy on sim:h100 --budget 5 --seed 3"


def test_workloads_are_taken_as_written() -> None:
    """A list among workloads runs together, and a text is alone."""
    found = jobs('[[group]]\nname = "a"\nworkloads = [["scan-lf:N=64", "fft:N=64"], "scan-ks:N=8"]\n')

    assert [job.workloads for job in found] == [("scan-lf:N=64", "fft:N=64"), ("scan-ks:N=8",)]


def test_a_job_is_one_line_without_control_characters() -> None:
    """A file of somebody else neither colours nor moves a terminal."""
    (job,) = jobs('[[group]]\nname = "a"\nworkloads = ["scan-lf:N=64\\u001b[31m\\n"]\n')

    assert job.title == "scan-lf:N=64\ufffd[31m\ufffd time"


def test_exclusions_leave_out_jobs_that_have_all_of_them() -> None:
    """A job is left out where it has one of the values of every key of an exclusion."""
    read = parsed(
        GROUP + 'sizes = { N = [64, 128, 256] }\nobjectives = ["time", "energy"]\n'
        'exclude = [{ N = [64, 128], objective = "time" }, { N = 256 }]\n',
        Path("sweep.toml"),
    )

    assert [job.title for job in read.jobs] == ["scan-lf:N=64 energy", "scan-lf:N=128 energy"]
    assert read.excluded == 4


def test_a_job_of_two_groups_is_run_once() -> None:
    """Two groups that ask for the same search have one job, of the first."""
    read = parsed(GROUP + GROUP.replace('"scans"', '"again"'), Path("sweep.toml"))

    assert [job.group for job in read.jobs] == ["scans"]
    assert read.repeated == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[group", "not valid TOML"),
        ("", "[[group]]: is needed"),
        ('[[group]]\nname = "a"\n', "[[group]] 1: kernels or workloads are needed (line 1)"),
        (GROUP.replace("kernels", "kernel"), "[[group]] 1 kernel: unknown key; did you mean 'kernels'?"),
        (GROUP + "sizes = { N = [] }\n", "[[group]] 1 sizes, N: must be a number, a text"),
        (GROUP + "devices = 'cuda:0'\n", "[[group]] 1 devices: must be a list (line 4)"),
        (GROUP + 'objectives = ["tim"]\n', "unknown 'tim'; choose from time, energy, edp, ed2p"),
        (GROUP + "options = { budgt = 3 }\n", "[[group]] 1 options, budgt: unknown option; did you mean"),
        (GROUP + "options = { budget = 1.5 }\n", "budget: 1.5: write a whole number from 1"),
        (GROUP + "options = { seed = [1, 1] }\n", "seed: holds a value more than once"),
        (GROUP + 'options = { objective = "time" }\n', "write objectives = [...] in [[group]]"),
        (GROUP + 'options = { device = "cuda:0" }\n', "options, device: write devices = [...] in [[group]]"),
        (
            '[sweep]\nkernel_files = ["no.toml"]\n' + GROUP,
            "[sweep] kernel_files, item 1: no.toml: there is no",
        ),
        ('[options]\npolicy = "x"\n' + GROUP, "[options] policy: unknown policy 'x'"),
        ("[option]\n" + GROUP, "option: unknown key; did you mean 'options'?"),
        (GROUP + GROUP, "[[group]] 2 name: 'scans' is the name of [[group]] 1 already"),
        (GROUP + "sizes = { N = 4 }\nexclude = [{ M = 4 }]\n", "exclude, item 1: unknown key 'M'"),
        (GROUP + "sizes = { N = 4 }\nexclude = [{ N = 8 }]\n", "exclude, item 1: no job of the group has"),
        (GROUP + "exclude = [{}]\n", "exclude, item 1: is empty"),
        (GROUP + 'exclude = [{ kernel = "scan-lf" }]\n', "its exclusions leave no job"),
        (
            GROUP + f"options = {{ seed = {SEVERAL}, budget = {SEVERAL} }}\n",
            "100,489 jobs; at most 100,000",
        ),
        (
            '[[group]]\nname = "a"\nworkloads = ["fft:N=8"]\nsizes = { N = 4 }\n',
            "sizes: are those of kernels",
        ),
    ],
)
def test_a_wrong_file_is_told_by_key(text: str, says: str) -> None:
    """Messages name the file, the table, the key and what would be right."""
    with pytest.raises(InputError) as caught:
        jobs(text)

    assert str(caught.value).startswith("sweep.toml: ")
    assert says in str(caught.value)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    """A folder, a file that is not there and one that is no text are told by their names."""
    from tuner.studies.sweep_file import read_sweep  # noqa: PLC0415 - of this test alone

    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    for name, says in (("", "is not a file"), ("no.toml", "No such file"), ("bytes.toml", "not UTF-8")):
        with pytest.raises(InputError, match=says):
            read_sweep(tmp_path / name)


def test_the_shipped_example_is_one() -> None:
    """The file of examples/sweep is the one of the how-to, and has the jobs that this says."""
    path = ROOT / "examples" / "sweep" / "sweep.toml"
    page = (ROOT / "docs" / "howto" / "many-problems.md").read_text()
    read = parsed(path.read_text(), path)

    assert load_toml(path.read_text())["sweep"]["description"] == read.description
    assert f"```toml\n{path.read_text()}```" in page
    assert f"lists {len(read.jobs)} jobs" in page
    assert read.excluded == 2


# --- the tables of a sweep: intervals, and what kind of numbers they are ---------------------------


ANSWER: Mapping[str, Any] = {
    "time_s": 127.6e-6,
    "time_s_uncertainty": 0.1e-6,
    "energy_j": 75.15e-3,
    "energy_j_uncertainty": 0.3e-3,
    "slowdown": 0.1,
    "slowdown_interval": 0.01,
    "energy_saving": 0.2,
    "energy_saving_interval": 0.02,
    "trials": 40,
}


def result(number: int, group: str = "scans", **kind: Any) -> JobResult:
    """A job that has ended with the answer, on a device of a kind."""
    job = SweepJob(group, (f"scan-lf:N={number}",), "energy", "sim:h200" if kind else "cuda:0")
    return JobResult(job, "finished", run=number, seconds=2.0, answer={**ANSWER, **kind})


def failed(number: int) -> JobResult:
    return JobResult(SweepJob("scans", (f"scan-lf:N={number}",)), "failed", reason="why")


def shown(capsys: pytest.CaptureFixture[str], results: Sequence[JobResult], width: int = 160) -> list[str]:
    """The report as lines, without space around them."""
    jobs = [one.job for one in results]
    show_sweep(SweepReport("sweep.toml", "played", jobs, list(results)), PlainConsole(width=width))
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def line_of(lines: Sequence[str], begin: str) -> str:
    """The one line that begins so, its words a space apart."""
    (line,) = (line for line in lines if line.startswith(begin))
    return " ".join(line.split())


def test_intervals_are_those_of_the_report_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Joules and changes have half of their 95 % interval, 1.96 standard uncertainties; times are brief."""
    lines = shown(capsys, [result(64)])

    assert line_of(lines, "scan-lf:N=64") == "scan-lf:N=64 127.6 µs 75.15 ± 0.59 mJ -20.0 ± 2.0 % 40 64"


def test_numbers_that_were_measured_have_no_label(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither heads nor rows speak of a kind where all are measured."""
    lines = shown(capsys, [result(4), result(8), failed(16)])

    assert not any(word in line for line in lines for word in ("modelled", "recorded", "measured", "numbers"))


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ({"modelled": True}, "(modelled)"),
        ({"recorded": "a file"}, "(recorded)"),
        ({"recorded": "a file", "modelled": True}, "(recorded, modelled)"),
    ],
)
def test_a_group_says_what_all_its_numbers_are(
    kind: Mapping[str, Any], label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The title above times, energy and changes and their median have the label; wall time has none."""
    lines = [" ".join(line.split()) for line in shown(capsys, [result(4, **kind), failed(8)])]
    labelled = [line for line in lines if label in line]

    assert labelled == [
        f"scans · sim:h200 · least energy {label}",
        f"1 job, median -20.0 % against the default {label}, tuning took 2.0 s",
    ]
    assert line_of(lines, "workloads time energy") == "workloads time energy against default trials run"


def test_a_narrow_console_loses_no_number_and_no_label(capsys: pytest.CaptureFixture[str]) -> None:
    """Where columns have no room, each number stands behind its head, and no line is wider."""
    lines = shown(capsys, [result(4, modelled=True)], width=40)
    text = " ".join(" ".join(lines).split())

    assert "scans · sim:h200 · least energy (modelled) time 127.6 µs energy 75.15 ± 0.59 mJ" in text
    assert "against default -20.0 ± 2.0 % run 4 scan-lf:N=4" in text
    assert "median -20.0 % against the default (modelled)" in text
    assert all(len(line) <= 40 for line in lines[:-2])


def test_a_table_has_room_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Each number stands below its head there."""
    lines = shown(capsys, [result(4, modelled=True)], width=80)

    assert line_of(lines, "workloads") == "workloads time energy against default trials run"
    assert line_of(lines, "scan-lf:N=4") == "scan-lf:N=4 127.6 µs 75.15 ± 0.59 mJ -20.0 ± 2.0 % 40 4"
    assert all(len(line) <= 80 for line in lines[:-2])


def test_rows_say_what_their_numbers_are_where_kinds_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """Each job has its kind, and each group those of its jobs; a job without an answer has none."""
    anywhere = [
        replace(one, job=replace(one.job, device=""), device=one.job.device)
        for one in (result(4), result(8, modelled=True), replace(failed(16), job=result(16).job))
    ]
    lines = shown(capsys, anywhere)

    assert lines[0] == "scans · any device · least energy (measured; modelled)"
    assert line_of(lines, "workloads").startswith("workloads device numbers time energy")
    assert "cuda:0 measured 127.6 µs" in line_of(lines, "scan-lf:N=4")
    assert "sim:h200 modelled 127.6 µs" in line_of(lines, "scan-lf:N=8")
    assert line_of(lines, "scan-lf:N=16") == "scan-lf:N=16 cuda:0 – – – – – –"
    assert line_of(lines, "3 jobs").startswith(
        "3 jobs, 1 failed, median -20.0 % against the default (measured; modelled), tuning took "
    )


def test_groups_of_one_kind_each_have_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    """What was measured has none, nor has a group without an answer."""
    lines = shown(capsys, [result(4), result(8, "models", modelled=True), failed(16)])

    assert "scans · cuda:0 · least energy" in lines
    assert line_of(lines, "models") == "models · sim:h200 · least energy (modelled)"
    assert "scans · any device · least time" in lines
    assert line_of(lines, "scan-lf:N=16") == "scan-lf:N=16 – – – –"
    assert "1 job, median -20.0 % against the default, tuning took 2.0 s" in lines
    assert "1 job, median -20.0 % against the default (modelled), tuning took 2.0 s" in lines


def test_json_has_standard_uncertainties() -> None:
    """What programs read is as in the document of a run."""
    one = result(4)
    (row,) = SweepReport("sweep.toml", "played", [one.job], [one]).document()["results"]

    assert (row["answer"]["time_s_uncertainty"], row["answer"]["energy_j_uncertainty"]) == (0.1e-6, 0.3e-3)
