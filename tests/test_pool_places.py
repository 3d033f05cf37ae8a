"""What --on may name, and what is refused before anything is started."""

import sys

import dask
import pytest
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.model.errors import InputError
from tuner.pool.places import PoolPlace, check_scheduler_address, parse_place
from tuner.pool.schedulers import allocated_gpus
from tuner.pool.worker import serve
from tuner.pool.worker_calls import open_workers


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("local", PoolPlace("local")),
        ("local:4", PoolPlace("local", 4)),
        ("dask://node7:8786", PoolPlace("dask", host="node7", port=8786)),
        ("dask://[::1]:8786", PoolPlace("dask", host="::1", port=8786)),
        ("slurm", PoolPlace("slurm")),
    ],
)
def test_places(text: str, place: PoolPlace) -> None:
    """Each form of --on is read."""
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text",
    ["", "local:0", "local:-1", "local:x", "dask://node7", "dask://node7:99999", "tcp://a:1", "slurm:2"],
)
def test_other_places_are_refused(text: str) -> None:
    """Anything else is an error that names the option."""
    with pytest.raises(InputError, match="--on"):
        parse_place(text)


@pytest.mark.parametrize("host", ["192.0.2.7", "127.0.0.1", "localhost", "[::1]"])
def test_scheduler_needs_certificates(host: str) -> None:
    """Without certificates no scheduler is talked to, on this host neither: its other users reach it."""
    with pytest.raises(InputError, match=r"TLS is required.*ca-file"), open_workers(f"dask://{host}:8786"):
        pass


def test_worker_needs_certificates() -> None:
    """A worker connects with TLS only, and says which key of Dask's configuration is missing."""
    check_scheduler_address("tls://192.0.2.7:8786")
    for address in ("tcp://192.0.2.7:8786", "tcp://127.0.0.1:8786", "192.0.2.7:8786", "http://127.0.0.1:1"):
        with pytest.raises(InputError):
            check_scheduler_address(address)
    refused = CliRunner().invoke(main, ["worker", "tcp://localhost:8786"])
    assert refused.exit_code == 2
    assert "TLS is required" in refused.output
    assert "write tls://localhost:8786" in refused.output
    with (
        dask.config.set({"distributed.comm.tls": {"ca-file": "ca.pem"}}),
        pytest.raises(InputError, match=r"tuner worker: TLS is required.*worker\.cert"),
    ):
        serve("tls://127.0.0.1:8786")


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"SLURM_GPUS": "8"}, 8),
        ({"SLURM_GPUS": "h100:8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_NUM_NODES": "3"}, 12),
        ({"SLURM_NTASKS": "2"}, 2),
    ],
)
def test_allocation_tells_its_gpus(variables: dict[str, str], gpus: int) -> None:
    """There are as many workers as the allocation has GPUs, as SLURM's variables say it."""
    assert allocated_gpus("slurm", {"SLURM_JOB_ID": "7", **variables}) == gpus


def test_slurm_needs_an_allocation_with_gpus() -> None:
    """Outside of an allocation, and in one without GPUs, the message says what to do."""
    with pytest.raises(InputError, match="sbatch or salloc"):
        allocated_gpus("slurm", {})
    with pytest.raises(InputError, match="--gpus"):
        allocated_gpus("slurm", {"SLURM_JOB_ID": "7"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "cloud"], "local, local:N, dask://HOST:PORT or slurm"),
        (["--on", "local:2", "--device", "replay:h200"], "leave --on out"),
        (["--on", "local:2", "--device", "cuda:1"], "leave --device out"),
        (["--on", "local", "--device", "sim:jetson-tx1"], "local:4"),
        (["--on", "local:2", "--allow-simulated"], "--device sim:NAME"),
        (["--on", "local:2", "--balance"], "--balance"),
    ],
)
def test_options_that_cannot_be_together(tmp_path: object, arguments: list[str], words: str) -> None:
    """What a pool cannot do is refused with exit code 2, before a worker is started."""
    command = ["run", "scan-lf:N=1024", "--database", f"{tmp_path}/a.db", *arguments]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert words in result.output


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Dask the message says what to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'gpu-tuner\[dask\]'"), open_workers("local:2"):
        pass
