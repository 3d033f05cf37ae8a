"""Workers of a scheduler that somebody else has started."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuner.errors import InputError, PoolError
from tuner.pool.places import PoolPlace, is_loopback

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_S = 20.0


@contextmanager
def open_remote(on: str, place: PoolPlace) -> "Iterator[tuple[Client, int]]":
    """Connect to a scheduler; it and its workers stay when this ends.

    TLS is used where Dask's configuration has certificates. A scheduler runs whatever reaches it, so that
    without them only one on the loopback is talked to.

    Args:
        on: what messages call it.
        place: the scheduler's.

    Yields:
        A connected client, and the least number of workers.

    Raises:
        InputError: it is off this host, and there are no certificates.
        PoolError: it does not answer.
    """
    import dask  # noqa: PLC0415 - only where --on is used
    from distributed import Client  # noqa: PLC0415 - as above

    tls = bool(dask.config.get("distributed.comm.tls.ca-file", None))
    if not tls and not is_loopback(place.host):
        raise InputError(
            f"--on {on}: TLS is required off this host. Set distributed.comm.tls.ca-file, .client.cert and"
            " .client.key in Dask's configuration, or DASK_DISTRIBUTED__COMM__TLS__CA_FILE and so on"
        )
    host = f"[{place.host}]" if ":" in place.host else place.host
    address = f"{'tls' if tls else 'tcp'}://{host}:{place.port}"
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise PoolError(f"--on {on}: no scheduler answers at {address}: {error}") from error
    with client:
        yield client, 1
