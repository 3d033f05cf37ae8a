"""Which rails of a board add up to what its module draws, board by board, with the source.

No total counts a rail that another one of it feeds. Where no document says what feeds what, the total is what
the newest ``tegrastats`` prints. ``ti,summation-disable`` in a device tree says nothing of that: it keeps a
channel out of the sum of shunt voltages that an INA3221 holds against its limit (kernel documentation,
``ti,ina3221.yaml``), as the 5 V supply of an AGX Orin, whose limit is that of GPU, SOC, CPU and CV.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RailBoard:
    """The rails of one board.

    Attributes:
        name: of the board.
        total: the rails that add up to what the module draws.
        feeder: one of them that feeds other rails that are measured; empty where none does.
        inside: these.
        source: what says so.
    """

    name: str
    total: tuple[str, ...]
    feeder: str
    inside: tuple[str, ...]
    source: str


BOARDS = (
    RailBoard(
        "TX1",
        ("VDD_IN",),
        "VDD_IN",
        ("VDD_GPU", "VDD_CPU"),
        "Jetson Linux Developer Guide 32.6.1, Power Management; NVIDIA forum, topic 201037: VDD_MUX is the"
        " carrier board's, beside it",
    ),
    RailBoard(
        "TX2",
        ("VDD_IN",),
        "VDD_IN",
        ("VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_SYS_CPU", "VDD_SYS_DDR", "VDD_4V0_WIFI"),
        "the same",
    ),
    RailBoard(
        "Nano",
        ("POM_5V_IN",),
        "POM_5V_IN",
        ("POM_5V_GPU", "POM_5V_CPU"),
        "NVIDIA forum, topic 73608: POM_5V_IN is the whole input, the others are in it",
    ),
    RailBoard(
        "Xavier NX, Orin NX, Orin Nano",
        ("VDD_IN",),
        "VDD_IN",
        ("VDD_CPU_GPU_CV", "VDD_SOC"),
        "NVIDIA forum, topic 200883: VDD_IN is the total of the module",
    ),
    RailBoard(
        "AGX Xavier",
        ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
        "",
        (),
        "Jetson AGX Xavier Product Design Guide, sections 5.2 and 5.6.2: SYS5V hangs on SYS_VIN_MV, which is"
        " beside the SYS_VIN_HV of the others",
    ),
    RailBoard(
        "AGX Orin, IGX Orin",
        ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
        "VIN_SYS_5V0",
        ("VDDQ_VDD2_1V8AO",),
        "Jetson Linux Developer Guide 36.4.3, Software-Based Power Consumption Modeling, and NVIDIA forum,"
        " topic 223111, as three public collectors quote them: VIN_SYS_5V0 feeds VDDQ_VDD2_1V8AO. tegrastats"
        " of JetPack 6 prints the other three. An IGX Orin's CVB_ATX rails are the carrier board's",
    ),
    RailBoard(
        "Thor",
        ("VIN",),
        "VIN",
        ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"),
        "NVIDIA forum, topic 366461: the INA238 measures all of the input, the carrier board's too",
    ),
)


def total_of(names: Sequence[str]) -> tuple[str, ...]:
    """The rails that add up to what a module draws: a known board's, else what no other is known to feed.

    Args:
        names: of the rails that there are, in any case.
    """
    by_name = {name.upper(): name for name in names}
    board_total = next((board.total for board in BOARDS if set(board.total) <= set(by_name)), ())
    fed = {rail for board in BOARDS if board.feeder in by_name for rail in board.inside}
    return tuple(by_name[rail] for rail in board_total or by_name if rail not in fed)
