"""The limits of the unit in force under a real systemd: `pytest -m systemd` as root."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import throwaway_program
from daemon_site import LONGEST_S, SERVICE, Site, marks, until, with_service

from tuner.model.errors import DaemonUnavailableError
from tuner.model.jobs import JobState

pytestmark = marks

CGROUP = Path("/sys/fs/cgroup")
MEMORY_MB = 450
COMPILES = 12
# Each takes more than all that the service may have.
SOURCE = """#ifndef V
#define V 1
#endif
__device__ int table[48 * 1024 * 1024] = {V};
extern "C" __global__ void hog(int* out) { out[threadIdx.x] = table[out[threadIdx.x]]; }
"""
KERNEL = f"""kernel.source = "hog.cu"
default = {{ V = 1 }}
problem.sizes.N = [256]
arguments.out = "inout int32[N] = constant(0)"
tunables.V = {list(range(1, COMPILES + 1))}
[[stage]]
name = "hog"
entry = "hog"
grid = 1
block = 256
arguments = ["out"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with with_service(tmp_path_factory.mktemp("site"), limits=True) as site:
        throwaway_program.put_compiler(site.machine.root)
        yield site


@contextmanager
def limited(site: Site, *lines: str) -> Iterator[int]:
    """Start the service with other limits for the block; its main process."""
    file = site.machine.path(f"/etc/systemd/system/{SERVICE}.d/limits.conf")
    file.write_text("\n".join(("[Service]", *lines, "")))
    try:
        for words in (("daemon-reload",), ("restart", SERVICE)):
            site.machine.run("systemctl", *words)
        yield site.ready()
    finally:
        file.unlink()
        for words in (("daemon-reload",), ("restart", SERVICE)):
            site.machine.run("systemctl", *words)


def group(site: Site, controller: str) -> Path:
    """Control group of the service, as this machine sees it."""
    lines = Path(f"/proc/{outside(site)}/cgroup").read_text().splitlines()
    (place,) = (line.rpartition(":")[2] for line in lines if controller in line.split(":")[1].split(","))
    return CGROUP / controller / place.lstrip("/")


def outside(site: Site) -> str:
    """Number of the main process on this machine."""
    inside = site.show("MainPID")
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, StopIteration):
            status = (folder / "status").read_text().splitlines()
            numbers = next(line for line in status if line.startswith("NSpid")).split()[2:]
            if numbers[-1:] == [inside] and Path(f"{folder}/root/srv/console.log").samefile(
                site.machine.path("/srv/console.log")
            ):
                return folder.name
    raise AssertionError(inside)


def test_the_shipped_limits_are_in_force(site: Site) -> None:
    """Half of the memory, 1024 tasks and 16384 descriptors, as the kernel has them, children included."""
    site.ready()
    memory_kb = int(next(line for line in Path("/proc/meminfo").read_text().splitlines()).split()[1])

    assert int(group(site, "memory").joinpath("memory.limit_in_bytes").read_text()) <= memory_kb * 1024 // 2
    assert group(site, "pids").joinpath("pids.max").read_text() == "1024\n"
    limits = Path(f"/proc/{outside(site)}/limits").read_text()
    assert next(line for line in limits.splitlines() if "open files" in line).split()[3:5] == ["16384"] * 2


def test_compiles_that_take_all_memory_cost_themselves_alone(site: Site) -> None:
    """Twelve of them end a compile child each; the daemon goes on answering, and the job ends."""
    kernels = site.machine.path("/etc/tuner/kernels.d")
    kernels.joinpath("hog.cu").write_text(SOURCE)
    kernels.joinpath("hog.toml").write_text(KERNEL)
    with limited(site, f"MemoryMax={MEMORY_MB}M") as pid:
        place = group(site, "memory")
        job = site.client.submit("hog:N=256", device="sim:jetson-tx1", policy="exhaustive")
        until(lambda: JobState(site.client.job(job.id).state).ended, "the end of the job", 900.0)
        done = site.client.job(job.id)
        peak = int(place.joinpath("memory.max_usage_in_bytes").read_text())
        killed = int(place.joinpath("memory.failcnt").read_text())

        assert done.state in ("failed", "finished"), done
        assert MEMORY_MB * 2**20 * 0.9 <= peak <= MEMORY_MB * 2**20
        assert killed
        assert int(site.show("MainPID")) == pid
        assert site.client.best("scan-lf:N=1024", device="sim:jetson-tx1").workloads


def test_without_tasks_jobs_wait_and_answers_are_given(site: Site) -> None:
    """The reason is told; with tasks again the job is done."""
    pid = site.ready()
    used = int(group(site, "pids").joinpath("pids.current").read_text())
    site.machine.run("systemctl", "set-property", "--runtime", SERVICE, f"TasksMax={used}")
    try:
        job = site.client.submit("scan-lf:N=8", device="sim:jetson-tx1", policy="random", budget=1)
        until(lambda: site.client.job(job.id).reason != "", "a reason", 300.0)
        assert site.client.best("scan-lf:N=1024", device="sim:jetson-tx1").workloads
        assert not JobState(site.client.job(job.id).state).ended
    finally:
        site.machine.run("systemctl", "set-property", "--runtime", SERVICE, "TasksMax=1024")
    until(lambda: site.client.job(job.id).state == "finished", "the end of the job", 300.0)
    assert int(site.show("MainPID")) == pid


def test_without_descriptors_clients_are_told(site: Site) -> None:
    """Of a hundred connections at 80 files the daemon tells those too many, and answers who comes then."""

    def answered() -> bool:
        with suppress(DaemonUnavailableError):  # too few files just now
            return bool(site.client.best("scan-lf:N=1024", device="sim:jetson-tx1").workloads)
        return False

    with limited(site, "LimitNOFILE=80") as pid:
        with ExitStack() as stack:
            for _ in range(100):
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.settimeout(LONGEST_S)
                connection.connect(str(site.machine.path("/run/tuner/tunerd.sock")))
        until(answered, "an answer")
        assert int(site.show("MainPID")) == pid
        assert "this process may open too few files" in site.journal()
