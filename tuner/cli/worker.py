"""``tuner worker``: one GPU of this host for the pool of a scheduler."""

import click

from tuner.cli.options import device_option


@click.command(short_help="Measure on one GPU for the runs of another process (`tuner run --on`).")
@click.argument("scheduler")
@device_option
def worker(scheduler: str, *, device: str | None) -> None:
    """Measure on one GPU for a run of `tuner run --on`, under a SCHEDULER of Dask.

    SCHEDULER is tls://HOST:PORT, with certificates in Dask's configuration. Start one for each GPU; without
    --device it takes the first that CUDA shows, so that `srun --gpus-per-task=1 tuner worker ...` gives each
    its own. It ends when the scheduler has gone.
    """
    from tuner.pool.places import check_scheduler_address
    from tuner.pool.worker_process import serve
    from tuner.pool.workers import require_dask

    require_dask("tuner worker")
    check_scheduler_address(scheduler)
    serve(scheduler, device or "")
