"""Suites of tests that run only where what they are about differs from main; CI runs all of them."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

BRANCHES = ("upstream/main", "origin/main", "main")
"""The first that is known is what a change is held against."""

TESTS = Path(__file__).parent


class Suite(NamedTuple):
    """Tests that are slow, and about a few folders.

    Attributes:
        about: files and folders; the suite runs where one differs from main's.
        through: rooms of the product that it only passes through: their own tests always run.
        files: patterns of test files below ``tests/``; they and their helpers are watched, too.
        marker: of tests in files that run anyway, in place of files.
    """

    about: tuple[str, ...]
    through: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    marker: str = ""

    def tests(self) -> list[Path]:
        """Its test files."""
        return sorted(file for pattern in self.files for file in TESTS.glob(pattern))

    def differs(self, changed: Iterable[str]) -> bool:
        """True where one of the changed files, as git names them, has it run."""
        changed = list(changed)
        if any(name == one or name.startswith(f"{one}/") for name in changed for one in self.about):
            return True
        watched = _watched(self)
        return any(name.startswith("tests/") and name in watched for name in changed)


_HOST = ("kernels", "tests/host", "tests/host_build.py", "tests/pairwise.py")  # kernels, and what runs them


def _rooms(names: str) -> tuple[str, ...]:
    return tuple(f"tuner/{name}" for name in names.split())


SUITES = {
    "kernels": Suite(
        (
            *_HOST,
            *("benchmarks/users", "examples"),
            *_rooms("compiler devices/cuda kernel_files/build_command.py linalg problems"),
        ),
        _rooms("application cli devices kernel_files model search space system"),
        (
            "kernels/test_*.py",
            "test_answer_kernels.py",
            "test_chains_host.py",
            "test_commands.py",
            "test_cuda_references.py",
            "test_examples.py",
            "test_linalg_scales.py",
            "test_measured_answers.py",
            "test_stated_references.py",
        ),
    ),
    "pairs": Suite((*_HOST, "tests/kernels"), marker="pairwise"),
    "faults": Suite(  # of daemons and of processes that hold clocks: killed, starved, flooded
        (
            *("power/clocks", "systemd"),
            *_rooms("daemon/main.py daemon/service.py search/fork_server.py search/job_launcher.py"),
            *_rooms("search/job_messages.py search/job_process.py"),
        ),
        (
            *("policies", "power"),
            *_rooms("cli client compiler daemon database devices joules kernel_files measurement model"),
            *_rooms("programs report search space system"),
        ),
        (
            "test_clock_kills.py",
            "test_daemon_faults.py",
            "test_daemon_process.py",
            "test_daemon_proofs.py",
            "test_daemon_shortage.py",
            "test_daemon_start.py",
            "test_job_launcher.py",
            "test_job_process.py",
        ),
    ),
    "clocks": Suite(  # set, followed and given back in whole runs
        ("power/clocks", "power/nvml", *_rooms("measurement search")),
        (
            *("power", "tuner/__main__"),
            *_rooms("cli compiler daemon devices kernel_files model recordings space system"),
        ),
        (
            "test_cli_clock_runs.py",
            "test_cli_clocks.py",
            "test_power_clockd.py",
            "test_power_guardian.py",
            "test_power_limits.py",
        ),
    ),
    "damage": Suite(  # of databases: found, mended, merged
        _rooms("database"),
        (
            "power",
            *_rooms("application cli daemon devices kernel_files model prediction report studies system"),
        ),
        (
            "test_backup.py",
            "test_database_damage.py",
            "test_database_mirror.py",
            "test_kill_and_resume.py",
            "test_merged_answers.py",
            "test_merging.py",
            "test_ranking.py",
        ),
    ),
    "exchange": Suite(
        _rooms("recordings"),
        _rooms("cli compiler daemon database devices kernel_files measurement model search space studies"),
        (
            "test_cli_exchange.py",
            "test_decoding.py",
            "test_exporting.py",
            "test_framework_files.py",
            "test_recordings.py",
        ),
    ),
    "kernel-tuner": Suite(
        _rooms("kernel_tuner"),
        _rooms("devices model search"),
        ("test_kernel_tuner_runs.py",),
    ),
    "benches": Suite(
        ("benchmarks",),
        _rooms("cli compiler devices kernel_files model"),
        ("test_benchmarks_help.py", "test_input_adaptive.py", "test_kernel_tuner_wall.py"),
    ),
    "schema": Suite(
        ("docs/openapi.json", "tests/schema_requests.py", *_rooms("daemon/http daemon/interface.py")),
        files=("test_daemon_hostile_schema.py",),
    ),
    "statistics": Suite(  # of joules: that intervals cover, and that sensors are told apart
        ("power/energy", "power/response", "tuner/measurement"),
        ("policies", "power", *_rooms("compiler database devices kernel_files model report search")),
        (
            "test_confirming.py",
            "test_power_identify.py",
            "test_power_intervals.py",
            "test_power_plot.py",
            "test_tracing_energy.py",
        ),
    ),
    "searches": Suite(  # whole ones, on modelled devices and recordings
        ("policies",),
        _rooms(
            "cli compiler daemon database devices kernel_files measurement model recordings search space"
            " studies"
        ),
        (
            "test_analytical.py",
            "test_bayesian.py",
            "test_clock_search.py",
            "test_pareto.py",
            "test_policy_contract.py",
            "test_search_bad_input.py",
            "test_several_at_once.py",
            "test_verification.py",
        ),
    ),
    "studies": Suite(
        _rooms("prediction studies"),
        _rooms("cli compiler database devices kernel_files measurement model recordings search space system"),
        ("test_cli_compare.py", "test_cli_sweep.py", "test_training.py"),
    ),
    "judge": Suite(  # candidates and cheats, each in processes of its own
        _rooms("cli/gate.py measurement/judged.py python/judging.py"),
        _rooms("cli kernel_files model"),
        ("test_judge.py",),
    ),
    "terminal": Suite(("tuner/cli/top",), _rooms("cli client model"), ("test_terminal_view.py",)),
    "packaging": Suite(
        ("Makefile", "pyproject.toml", "tuner/__init__.py", "tuner/__main__.py"),
        _rooms("model recordings"),
        ("test_packaging.py",),
    ),
    "pragmas": Suite(
        _rooms("kernel_files/pragmas"),
        _rooms("compiler kernel_files model"),
        ("test_pragmas_compiled.py", "test_pragmas_fuzzed.py", "test_pragmas_tiling.py"),
    ),
    "drafts": Suite(
        _rooms(
            "kernel_files/cuda_source kernel_files/draft_code.py"
            " kernel_files/draft_launch.py kernel_files/drafting.py kernel_files/source_checks.py"
        ),
        _rooms("cli compiler kernel_files model system"),
        ("test_cli_kernel_new.py", "test_drafts.py", "test_toolkit_headers.py"),
    ),
    "pools": Suite(
        _rooms("pool studies"),
        _rooms("cli database devices kernel_files model search"),
        ("test_pool_workers.py", "test_sweep_on_pool.py", "test_worker.py"),
    ),
}


def left_out(root: Path, chosen: str) -> dict[str, str]:
    """Suites that do not run, and why.

    Args:
        root: of the checkout.
        chosen: ``auto``, ``all``, ``none``, or names of suites, with commas.

    Raises:
        ValueError: a name is unknown.
    """
    if chosen == "all":
        return {}
    if chosen == "auto":
        base, changed = changes(root)
        if changed is None:
            return {}
        return {
            name: f"nothing it is about differs from {base}"
            for name, suite in SUITES.items()
            if not suite.differs(changed)
        }
    names = set(chosen.split(",")) - {"none"}
    unknown = ", ".join(sorted(names - SUITES.keys()))
    if unknown:
        raise ValueError(f"no suite is named {unknown}; there are auto, all, none, {', '.join(SUITES)}")
    return {name: f"SUITES is {chosen}" for name in SUITES if name not in names}


def changes(root: Path) -> tuple[str, list[str] | None]:
    """What the checkout is held against, and the files that differ, as git names them.

    Files of the working tree count, also those that git does not know yet. On main it is the commit before
    that is asked. No files are known without git, or where no branch is called main.
    """
    git = shutil.which("git")

    def lines(*words: str) -> list[str] | None:
        if git is None:
            return None
        done = subprocess.run([git, *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else None

    head = lines("rev-parse", "HEAD")
    branch, base = next(
        ((branch, found) for branch in BRANCHES if (found := lines("merge-base", "HEAD", branch))), ("", None)
    )
    if head == base:
        branch, base = "the last commit", lines("rev-parse", "HEAD^")
    if base is None:
        return branch, None
    differing = lines("diff", "--name-only", "--no-renames", base[0])
    untracked = lines("ls-files", "--others", "--exclude-standard")
    return branch, None if differing is None or untracked is None else differing + untracked


def with_helpers(files: list[Path]) -> list[Path]:
    """Files of tests, and those below ``tests/`` that they import, directly or not."""
    found = list(files)
    for file in found:  # which grows
        for module in imports(file):
            name = f"{module.split('.')[0]}.py"
            helpers = (TESTS / name, TESTS / "kernels" / name)
            found += [helper for helper in helpers if helper.exists() and helper not in found]
    return found


@cache
def _watched(suite: Suite) -> frozenset[str]:
    return frozenset(f"tests/{file.relative_to(TESTS).as_posix()}" for file in with_helpers(suite.tests()))


@cache
def imports(file: Path) -> frozenset[str]:
    """Names of the modules, and of the names in modules, that a file imports by their whole names."""
    absolute = [(module, names) for module, names in import_statements(file) if not module.startswith(".")]
    modules = {module for module, _ in absolute if module}
    return frozenset(
        modules | {f"{module}.{name}".strip(".") for module, names in absolute for name in names}
    )


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n]*))|import[ \t]+([^\n]*))",
    re.MULTILINE,
)


@cache
def import_statements(file: Path) -> list[tuple[str, list[str]]]:
    """Each import of a file: the module behind ``from``, as it is written, and names; no module without.

    Lines are read, in a thirtieth of the time that parsing takes. Imports in code that a test hands to
    another process are among them.
    """
    return [
        (module, [name.split()[0] for name in re.sub("#.*", "", "".join(names)).split(",") if name.strip()])
        for module, *names in _IMPORT.findall(file.read_text())
    ]
