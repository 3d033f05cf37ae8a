"""Workers of a scheduler that somebody else has started."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuner.model.errors import PoolError
from tuner.pool.places import PoolPlace, require_certificates

if TYPE_CHECKING:
    from distributed import Client


_CONNECT_S = 20.0


@contextmanager
def open_remote(on: str, place: PoolPlace) -> "Iterator[tuple[Client, int]]":
    """Connect to a scheduler; it and its workers stay when this ends.

    Args:
        on: what messages call it.
        place: the scheduler's.

    Yields:
        A connected client, and the least number of workers.

    Raises:
        InputError: there are no certificates.
        PoolError: it does not answer.
    """
    from distributed import Client  # noqa: PLC0415 - only where --on is used

    require_certificates(f"--on {on}", "client")
    host = f"[{place.host}]" if ":" in place.host else place.host
    address = f"tls://{host}:{place.port}"
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise PoolError(f"--on {on}: no scheduler answers at {address}: {error}") from error
    with client:
        yield client, 1
