"""Sweep files: which jobs they stand for, and what is said of wrong ones."""

from pathlib import Path

import pytest

from tuner.model.errors import InputError
from tuner.studies.sweep_file import SweepJob, parsed
from tuner.system.untrusted.reading import load_toml

ROOT = Path(__file__).parent.parent
GROUP = '[[group]]\nname = "scans"\nkernels = ["scan-lf"]\n'


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

    assert job.title == "scan-lf:N=64\ufffd[31m\ufffd energy"


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
        (GROUP + f"options = {{ seed = {list(range(100_001))} }}\n", "100,001 jobs; at most 100,000"),
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
