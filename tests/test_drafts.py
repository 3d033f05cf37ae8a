"""Drafts of ``tuner kernels new`` against right launches, for sources as public projects have them."""

import re
from pathlib import Path
from typing import Any

import pytest
import tomllib
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.compiler.compiler import compiled_for
from tuner.compiler.contract import misfit
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.source_checks import unseen_guesses
from tuner.model.errors import CompileError, InputError
from tuner.model.plan import Plan, Scalar

FOLDER = Path(__file__).parent / "data" / "drafts"
LAUNCHES: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "launches.toml").read_text())
MOST_PLANS = 200
LEAST_RIGHT = 24


def drafted(folder: Path, name: str, kernel: str | None) -> Path:
    source = folder / f"{name}.cu"
    source.write_text((FOLDER / source.name).read_text())
    words = ["--kernel", kernel] if kernel else []
    result = CliRunner().invoke(main, ["kernels", "new", str(source), *words])
    assert result.exit_code == 0, result.output
    return source.with_suffix(".toml")


def with_sizes(text: str, wanted: dict[str, int]) -> str:
    """A kernel file with other sizes: those at which its parameters, or macros, have some values."""
    for parameter, value in wanted.items():
        found = re.search(rf'^{parameter} = "u?int(?:32|64) = (\w+)"', text, re.MULTILINE)
        name = found[1] if found else parameter
        text = re.sub(rf"^sizes\.{name} = \[\d+\]", f"sizes.{name} = [{value}]", text, flags=re.MULTILINE)
    return text


def names_of(plan: Plan, parameters: dict[str, int]) -> dict[str, object]:
    """Everything that a rule of ``launches.toml`` may name."""
    (stage,) = plan.stages
    named: dict[str, object] = {**parameters, "cdiv": lambda a, b: -(-a // b), "shared": stage.shared_bytes}
    named |= dict(zip(("gx", "gy", "gz"), stage.grid, strict=True))
    named |= dict(zip(("bx", "by", "bz"), stage.block, strict=True))
    return (
        named
        | {f"len_{buffer.name.removesuffix('_')}": buffer.elements for buffer in plan.buffers}
        | {f"len_{buffer.name}": buffer.elements for buffer in plan.buffers}
    )


def trouble(name: str, folder: Path) -> tuple[str, int]:
    """What is wrong with the draft of a source, empty if nothing is, and the guesses that it marks."""
    case = LAUNCHES[name]
    file = drafted(folder, name, case.get("kernel"))
    text = file.read_text()
    guesses = unseen_guesses(file).count(",") + bool(unseen_guesses(file))
    parameters = case.get("sizes", {})
    file.write_text(with_sizes(text, parameters))
    try:
        kernel = load_kernel_file(file)
        workload = kernel.workloads()[0]
        space = kernel.space(workload)
        default = kernel.default(workload)
    except InputError as error:
        return str(error), guesses
    shown = [space[i * len(space) // min(len(space), MOST_PLANS)] for i in range(min(len(space), MOST_PLANS))]
    for configuration in [default, *shown]:
        plan = kernel.plan(workload, configuration)
        scope = {**case.get("defaults", {}), **names_of(plan, parameters), **configuration}
        try:
            right = eval(case["right"], {"__builtins__": {}}, scope)  # noqa: S307 - of this repository
        except NameError as error:
            return str(error), guesses
        passed = {a for a in plan.stages[0].arguments if isinstance(a, Scalar)}
        if not right:
            return (
                f"{plan.label()}: grid {plan.stages[0].grid} block {plan.stages[0].block} {passed}",
                guesses,
            )
    plan = kernel.plan(workload, default)
    (code,) = compiled_for({"sm_90": plan.stages})["sm_90"]
    return (str(code) if isinstance(code, CompileError) else misfit(plan, plan.stages[0], code)), guesses


@pytest.fixture(scope="module")
def troubles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    folder = tmp_path_factory.mktemp("drafts")
    return {name: trouble(name, folder) for name in LAUNCHES}


def test_most_drafts_launch_rightly(troubles: dict[str, tuple[str, int]]) -> None:
    """Unedited, at other sizes than they state, in every configuration; the others say what they guess."""
    wrong = {name: text for name, (text, _) in troubles.items() if text}

    assert len(LAUNCHES) - len(wrong) >= LEAST_RIGHT, wrong
    assert [name for name in wrong if not troubles[name][1]] == []


def test_every_source_of_the_corpus_has_its_launch() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.cu")) == sorted(LAUNCHES)
