"""``tuner occupancy``: how full a kernel fills a multiprocessor, and what stops it."""

import click

from tuner.cli.options import device_option
from tuner.cli.output import console, json_option, write_json


@click.command(short_help="Print the occupancy of a kernel, and what limits it.")
@device_option
@click.option("--threads", type=int, required=True, metavar="N", help="Threads of a block.")
@click.option(
    "--registers",
    type=int,
    default=0,
    metavar="N",
    help="Registers of a thread. Default: not counted.",
)
@click.option(
    "--shared-bytes",
    type=int,
    default=0,
    metavar="N",
    help="Shared memory of a block, static and dynamic. Default: none.",
)
@json_option
def occupancy(
    *, device: str | None, threads: int, registers: int, shared_bytes: int, json_path: str | None
) -> None:
    """Print resident blocks, warps and occupancy of a kernel, and which limit binds."""
    from tuner.devices.worker import open_device
    from tuner.errors import InputError
    from tuner.space.occupancy import occupancy as fill

    opened = open_device(device)
    try:
        limits, spec = opened.device.limits, opened.device.identity.spec
        if limits is None:
            raise InputError(f"{spec}: the limits of this GPU were not recorded")
    finally:
        opened.device.close()
    if opened.notice:
        click.echo(f"notice: {opened.notice}", err=True)
    filled = fill(limits, threads, registers, shared_bytes)
    if json_path is not None:
        write_json(
            json_path,
            {
                "device": spec,
                "threads_per_block": threads,
                "registers_per_thread": registers,
                "shared_bytes": shared_bytes,
                "blocks_per_sm": filled.blocks_per_sm,
                "warps_per_sm": filled.warps_per_sm,
                "occupancy": filled.occupancy,
                "limited_by": filled.limited_by,
                "binding": list(filled.binding),
            },
        )
    also = f" (with {', '.join(filled.binding[1:])})" if filled.binding[1:] else ""
    lines = (
        f"device         {spec}, compute capability {'.'.join(map(str, limits.compute_capability))}",
        f"blocks per SM  {filled.blocks_per_sm} of {limits.max_blocks_per_sm}",
        f"warps per SM   {filled.warps_per_sm} of {limits.max_warps_per_sm}",
        f"occupancy      {100 * filled.occupancy:.4g} %",
        f"limited by     {filled.limited_by}{also}",
    )
    console(json_path).print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
