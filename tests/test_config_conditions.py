"""Tunables with a condition in kernel files: what they become, and how mistakes are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from kernel_texts import Load, loader, text_of

from tuner.cli.main import main
from tuner.model.errors import ExpressionError, InputError, KernelFileError, UnknownNameError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Configuration

TEXT = text_of("forms")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return loader("forms", tmp_path)


def replaced(old: str, new: str) -> str:
    assert TEXT.count(old) == 1, old
    return TEXT.replace(old, new)


DEFAULT = "ring = 8\n"
WITH_LAG = replaced(DEFAULT, "ring = 8\nlag = 2\n")


def test_a_configuration_has_the_tunables_whose_conditions_are_true(load: Load) -> None:
    """Others are not in it; rules of a variant hold in it alone."""
    kernel = load(WITH_LAG)
    small, large = kernel.workloads()
    names = {" ".join(configuration) for configuration in kernel.space(large)}
    assert names == {"form P L", "form P L ring", "form P L ring lag", "form P"}
    assert {str(c["form"]) for c in kernel.space(small)} == {"plain", "cluster"}
    assert all(c["P"] in (1, 2) for c in kernel.space(large) if c["form"] == "cluster"), "L stands for 32 * P"
    assert kernel.conditions == {
        "L": "form != 'cluster'",
        "ring": "form == 'ring'",
        "lag": "(form == 'ring') and (ring == 8)",
    }
    assert kernel.rules == (
        "L * P <= 128",
        "slots > P (where form == 'ring')",
        "large (where form == 'ring')",
    )


def test_what_expressions_see(load: Load) -> None:
    """Otherwise stands for a tunable without a value; branches not taken are not looked at."""
    kernel = load(WITH_LAG)
    workload = kernel.workloads()[1]

    def launched(**values: Any) -> list[tuple[str, int]]:
        plan = kernel.plan(workload, Configuration(values))
        return [(stage.entry, stage.block[0]) for stage in plan.stages]

    cluster = Configuration([("form", "cluster"), ("P", 2)])
    assert launched(form="ring", P=1, L=64, ring=8, lag=2) == [("ring<16, 2>", 64), ("tail", 64)]
    assert launched(form="ring", P=1, L=64, ring=4) == [("ring<8, 0>", 64)]
    assert launched(form="cluster", P=2) == [("others<2>", 64)]
    assert [b.name for b in kernel.plan(workload, cluster).buffers] == ["x"]


def test_the_default_follows_the_conditions(load: Load) -> None:
    """Of tunables with a condition it takes the values where they have one, and asks for those it lacks."""
    kernel = load(WITH_LAG)
    small, large = kernel.workloads()
    assert dict(kernel.default(small)) == {"form": "plain", "P": 2, "L": 32}
    assert dict(kernel.default(large)) == {"form": "ring", "P": 2, "L": 32, "ring": 8, "lag": 2}
    kernel = load(TEXT)
    assert dict(kernel.default(small)) == {"form": "plain", "P": 2, "L": 32}
    with pytest.raises(KernelFileError) as error:
        kernel.default(large)
    assert f"{kernel.path}: [default]: a value is missing for lag, whose condition" in str(error.value)
    assert "\"(form == 'ring') and (ring == 8)\" is true at forms:N=4096" in str(error.value)


def test_a_callers_values(load: Load) -> None:
    """Values of tunables that have none are left out; one that is missing is named with its condition."""
    kernel = load(WITH_LAG)
    workload = kernel.workloads()[1]
    given: dict[str, Any] = {"form": "ring", "P": 1, "L": 32, "ring": 4}
    assert dict(kernel.configuration(workload, {**given, "lag": 7})) == given
    assert dict(kernel.configuration(workload, {"form": "cluster", "P": 1})) == {"form": "cluster", "P": 1}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"form": "ring"}, "configuration: P missing; it names all of form, P"),
        (
            {"form": "plain", "P": 1},
            "L missing; with form=plain P=1 its condition \"form != 'cluster'\" is true",
        ),
        ({**given, "ring": 5}, "configuration: ring is 5; choose from 4, 8"),
        ({**given, "ring": 8}, "lag missing; with form=ring P=1 L=32 ring=8 its condition"),
        ({"form": "plain", "P": 4, "L": 64}, "breaks the rule 'L * P <= 128' at forms:N=4096"),
    ]
    for values, trouble in refused:
        with pytest.raises(InputError) as error:
            kernel.configuration(workload, values)
        assert trouble in str(error.value)
        assert kernel.allowed(workload, values) is None
    with pytest.raises(UnknownNameError, match=r"no tunable 'rin'; .* did you mean 'ring'"):
        kernel.configuration(workload, {**given, "rin": 5})


def test_a_default_against_a_variants_rule(load: Load) -> None:
    """The rule is quoted with the condition under which it holds."""
    kernel = load(WITH_LAG.replace('"slots > P", "large"', '"slots > 8 * P"'))
    with pytest.raises(KernelFileError) as error:
        kernel.default(kernel.workloads()[1])
    assert "[default]: form=ring P=2 L=32 ring=8 lag=2 breaks the rule" in str(error.value)
    assert "slots > 8 * P (where form == 'ring')" in str(error.value)


def test_check_tells_a_tunable_that_never_has_a_value(load: Load) -> None:
    """Rules and sizes may keep a condition from ever being true; a well-formed file passes."""
    path = str(load(WITH_LAG).path)
    passed = CliRunner().invoke(main, ["kernels", "check", path, "--no-compile"])
    assert passed.exit_code == 0, passed.output
    load(WITH_LAG.replace("N = [64, 4096]", "N = [64]"))
    failed = CliRunner().invoke(main, ["kernels", "check", path, "--no-compile"])
    assert failed.exit_code == 2
    assert "[variant.ring] when: ring has no value in any configuration of any size" in failed.output


def test_show_tells_the_conditions(load: Load) -> None:
    """A tunable is listed with where it has a value."""
    path = str(load(WITH_LAG).path)
    shown = CliRunner().invoke(main, ["kernels", "show", "forms", "--kernel", path])
    assert "tunable ring  4 8   (where form == 'ring')" in shown.output
    assert "form=ring P=2 L=32 ring=8 lag=2" in shown.output


def test_a_permutation_has_every_order_and_rules_ask_where_items_stand(load: Load) -> None:
    """The orders are texts, the given one first; index_of is the place of an item, from 0."""
    kernel = load(
        replaced("P = [1, 2, 4]", "P = [1, 2, 4]\norder = { permutation = [0, 1, 2] }")
        .replace('rules = ["L * P <= 128"]', """rules = ["L * P <= 128", "index_of(order, '0') < 2"]""")
        .replace("P = 2\n", "P = 2\norder = '0,2,1'\n")
    )
    workload = kernel.workloads()[0]

    assert kernel.tunables["order"] == ("0,1,2", "0,2,1", "1,0,2", "1,2,0", "2,0,1", "2,1,0")
    assert {one["order"] for one in kernel.space(workload)} == {"0,1,2", "0,2,1", "1,0,2", "2,0,1"}
    assert kernel.default(workload)["order"] == "0,2,1"


def test_index_of_names_what_is_no_item() -> None:
    """An item that the text has not is an error, on one value and on many."""
    wanted = Expression("index_of(order, 'k')")
    assert wanted.evaluate({"order": "i,k"}) == 1
    for order in ("i,j", np.array(["i,k", "i,j"])):
        with pytest.raises(ExpressionError, match="index_of: 'k' is no item of 'i,j'"):
            wanted.evaluate({"order": order})
