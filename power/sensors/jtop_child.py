"""The child process that talks to the jtop service and prints its power rails, one JSON line per update.

Importing ``jtop`` sets how the whole process starts others to ``fork``, which is not safe beside CUDA; so it
is imported here and nowhere else.
"""

import json
from typing import Any


def main(interval_s: float) -> int:
    """Print rails in milliwatts until the service, or the reader of the lines, goes away."""
    try:
        from jtop import jtop  # noqa: PLC0415 - a package that is not there is one of the answers

        with jtop(interval=interval_s) as board:
            while board.ok():
                print(_line(board.power), flush=True)  # noqa: T201 - the pipe to the parent
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - whatever it is, its words are what the parent can show
        print(f"{type(error).__name__}: {error}")  # noqa: T201 - same
        return 1
    print("the jtop service has ended the connection")  # noqa: T201 - same
    return 1


def _line(power: Any) -> str:  # noqa: ANN401 - plain values of a package without types
    """JSON of the present power of each rail and of what jtop calls the total, in milliwatts.

    The averages beside it are over no stated time.

    Raises:
        TypeError: the package is older than 4.2, in which power became a table.
    """
    if not isinstance(power, dict):
        raise TypeError(
            "jetson-stats before 4.2 tells power in another form: sudo pip3 install -U jetson-stats, then"
            " sudo systemctl restart jtop"
        )
    total = power.get("tot", {})
    rails = {name: rail.get("power") for name, rail in power.get("rail", {}).items()}
    return json.dumps({"rails": rails, "total": total.get("power"), "total_name": total.get("name")})
