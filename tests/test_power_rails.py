"""Rails of Jetson boards: what their names say, and which of them energy is tuned by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetson_trees import BOARDS
from tuner.power.sensors.jetson import parse_line
from tuner.power.sensors.rails import BOARDS as RAIL_BOARDS
from tuner.power.sensors.rails import RailBoard, choices, distinct, is_connected, parts

XAVIER = "GPU+CPU+SOC+CV+VDDRQ+SYS5V"
ORIN = "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VDD_IN", ("input",)),
        ("POM_5V_IN", ("input",)),
        ("VIN", ("input",)),
        ("vdd_in", ("input",)),
        ("VDD_IN#2", ("input",)),
        ("VDD_GPU", ("gpu",)),
        ("POM_5V_GPU", ("gpu",)),
        ("VDD_SYS_GPU", ("gpu",)),
        ("GPU", ("gpu",)),
        ("VDD_GPU_SOC", ("gpu", "soc")),
        ("VDD_CPU_GPU_CV", ("gpu", "cpu", "cv")),
        ("VDD_CPU_CV", ("cpu", "cv")),
        ("CPU", ("cpu",)),
        ("SOC", ("soc",)),
        ("VDD_SYS_SOC", ("soc",)),
        ("CV", ("cv",)),
        ("VDD_CPU_SOC_MSS", ("cpu", "soc", "memory")),
        ("VDDRQ", ("memory",)),
        ("VDDQ_VDD2_1V8AO", ("memory",)),
        ("VDD_SYS_DDR", ("memory",)),
        ("SYS5V", ("system",)),
        ("VIN_SYS_5V0", ("system",)),
        ("VDD_4V0_WIFI", ()),
        ("VDD_MUX", ()),
        ("VDD_GPU_IN", ("gpu",)),
        ("VDD_M2_IN", ()),
        ("VDD_5V_IN", ("input",)),
        ("GPU0_MEM_VDD", ("gpu", "memory")),
        ("", ()),
    ],
)
def test_a_name_says_what_hangs_on_the_rail(name: str, expected: tuple[str, ...]) -> None:
    """Rails that several parts share belong to all of them, and a supply of the board is not its input."""
    assert parts(name) == expected


@pytest.mark.parametrize("name", ["NC", "nc", "", " ", "(null)"])
def test_unconnected_channels_are_no_rails(name: str) -> None:
    """A channel whose name says that nothing hangs on it is left out."""
    assert not is_connected(name)
    assert is_connected("VDD_IN")


@pytest.mark.parametrize(
    ("board", "first", "scope"),
    [
        ("tx1", "VDD_IN", "VDD_IN (total input)"),
        ("nano", "POM_5V_IN", "POM_5V_IN (total input)"),
        ("agx-xavier", XAVIER, f"{XAVIER.replace('+', ' + ')} (sum of all rails)"),
        ("xavier-nx", "VDD_IN", "VDD_IN (total input)"),
        ("orin-nx", "VDD_IN", "VDD_IN (total input)"),
        ("agx-orin", ORIN, f"{ORIN.replace('+', ' + ')} (sum that counts no rail twice)"),
        ("thor", "VIN", "VIN (total input)"),
    ],
)
def test_the_first_choice_of_each_board(board: str, first: str, scope: str) -> None:
    """The total input where there is one, else the sum of all rails, which has the DRAM too."""
    names = [rail.name for monitor in BOARDS[board].monitors for rail in monitor.rails]

    best = choices([name for name in names if is_connected(name)])[0]

    assert (best.name, best.scope) == (first, scope)


@pytest.mark.parametrize("board", RAIL_BOARDS, ids=lambda board: board.name)
@pytest.mark.parametrize("others", [(), ("CVB_ATX_12V", "CVB_ATX_3V3"), ("VDD_MUX", "VDD_5V_IO_SYS")])
def test_no_total_counts_a_rail_twice(board: RailBoard, others: tuple[str, ...]) -> None:
    """Of each board the first choice is its total, also beside the rails that it feeds and the carrier's."""
    for names in (board.total, (*board.inside, *board.total), (*others, *board.inside, *board.total)):
        best = choices(names)[0]
        assert best.rails == board.total
        assert choices([name.lower() for name in names])[0].name == best.name.lower()
        assert best.is_total
        assert not set(best.rails) & set(board.inside)
    assert board.source


def test_two_readings_of_an_agx_orin_agree() -> None:
    """Its memory is in the 5 V supply: old lines of tegrastats, which name it too, tell the same total."""
    line = (
        "VDD_GPU_SOC 4788mW/4788mW VDD_CPU_CV 798mW/798mW VIN_SYS_5V0 3842mW/3842mW"
        " VDDQ_VDD2_1V8AO 707mW/707mW"
    )
    for text in (line, line.rpartition(" VDDQ")[0]):
        rails = parse_line(text)
        assert sum(rails[name] for name in choices(list(rails))[0].rails) == pytest.approx(9.428)


def test_a_rail_that_is_fed_by_another_is_in_no_sum() -> None:
    """Also where a rail of the board is missing, so that nobody knows its total."""
    assert choices(["VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"])[0].name == "VDD_CPU_CV+VIN_SYS_5V0"


def test_a_board_without_input_offers_the_sum() -> None:
    """All rails together are named as the sum they are, before what the GPU hangs on."""
    names = ["GPU", "CPU", "SOC"]

    assert [choice.name for choice in choices(names)] == ["GPU+CPU+SOC", "GPU", "CPU", "SOC"]
    assert choices(names)[0].scope == "GPU + CPU + SOC (sum of all rails)"


def test_an_input_is_not_added_to_what_hangs_on_it() -> None:
    """Where a rail is the input of the others no sum is offered: it would count power twice."""
    found = choices(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])

    assert [choice.name for choice in found] == ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]


def test_several_gpu_rails_are_added() -> None:
    """A GPU that hangs on two rails is their sum, and each can still be had alone."""
    found = choices(["VDD_GPU0", "VDD_GPU1", "VDD_CPU"])

    assert found[1].name == "VDD_GPU0+VDD_GPU1"
    assert found[1].scope == "VDD_GPU0 (gpu) + VDD_GPU1 (gpu)"
    assert {"VDD_GPU0", "VDD_GPU1", "VDD_CPU"} < {choice.name for choice in found}


def test_unknown_rails_are_offered_as_their_sum_first() -> None:
    """Names that say nothing leave the sum as the only thing the GPU is surely in."""
    assert [choice.name for choice in choices(["A", "B"])] == ["A+B", "A", "B"]


@given(st.lists(st.text(max_size=8), max_size=6))
def test_every_rail_can_be_chosen_once(names: list[str]) -> None:
    """Whatever rails are called, each can be read alone; no choice and no name comes twice."""
    unique = distinct(names)
    found = choices(unique)

    assert len(set(unique)) == len(names)
    assert {(name,) for name in unique} <= {choice.rails for choice in found}
    assert len({choice.rails for choice in found}) == len(found)


def test_a_name_that_comes_twice_is_numbered() -> None:
    """Two chips may call their rails alike."""
    assert distinct(["VDD_IN", "VDD_IN", "A", "VDD_IN"]) == ["VDD_IN", "VDD_IN#2", "A", "VDD_IN#3"]
