"""Kernel files: what they become, and that every mistake names the file, the key and what would be right."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomllib
from kernel_texts import FOLDER, Load, changed, loader, text_of

from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile, with_places
from tuner.kernel_files.schema import json_schema
from tuner.model.errors import EmptySpaceError, InputError, KernelFileError, UnknownNameError
from tuner.model.plan import STREAM_PRIORITY, Buffer, Configuration, Resources, Scalar

TEXT = text_of("rows")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return loader("rows", tmp_path)


@pytest.fixture
def kernel(load: Load) -> KernelFile:
    """The kernel of the text above."""
    return load(TEXT)


def first(kernel: KernelFile, **values: Any) -> Configuration:
    workload = kernel.workload({"N": 64, "kind": "up"})
    return Configuration({**kernel.default(workload), **values})


def test_what_a_file_says(kernel: KernelFile) -> None:
    """The plain facts of a file are attributes."""
    assert (kernel.name, kernel.description, kernel.family) == ("rows", "Sums of rows", "scan")
    assert kernel.sizes == {"N": (64, 128), "kind": ("up", "down")}
    assert kernel.tunables["shuffle"] == (True, False)
    assert kernel.roles == {"elements_per_thread": "P", "threads_per_block": "L"}
    assert kernel.min_occupancy == 0.5
    assert kernel.path.name == "kernel.toml"


def test_workloads(kernel: KernelFile) -> None:
    """A workload has every size in the file's order and the file's batch unless another is given."""
    workload = kernel.workload({"kind": "down", "N": 128})
    assert str(workload) == "rows:N=128,kind=down"
    assert workload.batch == 32
    assert kernel.workload({"kind": "up", "N": "64"}, batch=3).sizes == (("N", 64), ("kind", "up"))
    assert kernel.workload({"kind": "up", "N": 64}, batch=3).batch == 3
    assert len(kernel.workloads()) == 4


@pytest.mark.parametrize(
    ("sizes", "trouble"),
    [
        ({"N": 65, "kind": "up"}, "rows has no N=65; choose N from 64, 128"),
        ({"N": 64}, "size kind is missing, as in rows:N=64,kind=up; choose kind from up, down"),
        ({"N": 64, "kind": "up", "kin": 3}, "unknown size 'kin'; choose from N, kind, batch; did you mean"),
    ],
)
def test_sizes_outside_the_file(kernel: KernelFile, sizes: dict[str, Any], trouble: str) -> None:
    """A size the file does not have is refused with those it has."""
    with pytest.raises(UnknownNameError) as error:
        kernel.workload(sizes)
    assert trouble in str(error.value)


def test_batches_are_whole_and_positive(kernel: KernelFile) -> None:
    """A batch below one is refused."""
    with pytest.raises(InputError, match="batch is 0"):
        kernel.workload({"N": 64, "kind": "up"}, batch=0)


def test_the_space_obeys_the_rules(kernel: KernelFile) -> None:
    """Rules see sizes and tunables; the default configuration is in the space of every workload."""
    for workload in kernel.workloads():
        space = kernel.space(workload)
        assert kernel.default(workload) in space
        assert all(kernel.broken_rule(workload, configuration) is None for configuration in space)
    down = kernel.workload({"N": 64, "kind": "down"})
    assert not any(configuration["shuffle"] for configuration in kernel.space(down))
    assert kernel.default(down)["shuffle"] is False
    assert kernel.broken_rule(down, first(kernel)) == "kind == 'up' or not shuffle"


def test_a_plan_has_every_expression_evaluated(kernel: KernelFile) -> None:
    """Entry, options, geometry, arguments, buffers, declared resources and work follow from the values."""
    workload = kernel.workload({"N": 64, "kind": "up"}, batch=10)
    plan = kernel.plan(workload, first(kernel, L=32, shuffle=False))
    (stage,) = plan.stages
    assert stage.entry == "rows<64, 8, false, fast>"
    assert stage.options == ("--std=c++17", "-DP=4")
    assert (stage.grid, stage.block, stage.shared_bytes) == ((10, 1, 1), (32, 2, 1), 128)
    assert stage.arguments == ("x", Scalar("int32", 10), Scalar("float32", 1 / 64), "partial")
    assert plan.buffers == (
        Buffer("x", "float32", (10, 64), "inout"),
        Buffer("partial", "float64", (10,), "scratch"),
    )
    assert stage.declared == Resources(24, compiled=False)
    assert (plan.work.bytes, plan.work.steps, plan.work.rate_units) == (5120, 6, 640)
    assert (plan.work.rate_name, plan.work.rate_scale) == ("MData/s", 1e6)
    assert (plan.problem.name, plan.problem.tolerance) == ("scan", 1e-5)
    assert stage.source.text == "// rows\n"
    assert dict(stage.source.headers) == {"own.cuh": "// own\n", "step.cuh": "// step\n"}


def test_what_is_not_taken_is_not_checked(load: Load) -> None:
    """A size that could not be is none where another is taken."""
    kernel = load(TEXT.replace("4 * L", "4 * L - 400"))
    plan = kernel.plan(kernel.workload({"N": 64, "kind": "up"}), first(kernel, L=64))
    assert plan.stages[0].shared_bytes == 0


def test_plans_share_one_source(kernel: KernelFile) -> None:
    """The source is read once, so that ten thousand plans hold one copy of it."""
    workload = kernel.workload({"N": 64, "kind": "up"})
    sources = {id(kernel.plan(workload, c).stages[0].source) for c in kernel.space(workload)}
    assert len(sources) == 1


@pytest.mark.parametrize(
    ("rate", "scale"), [("MRows/s", 1e6), ("GFLOPS", 1e9), ("Trials/s", 1.0), ("kB/s", 1e3), ("", 1.0)]
)
def test_scale_of_the_rate(load: Load, rate: str, scale: float) -> None:
    """A prefix before a capital letter scales the rate; the same letter within a word does not."""
    kernel = load(TEXT.replace("MData/s", rate))
    workload = kernel.workload({"N": 64, "kind": "up"})
    assert kernel.plan(workload, first(kernel)).work.rate_scale == scale


STAGES = """
[[stage]]
name = "up"
entry = "up<{P}>"
grid = "batch"
block = "L"
arguments = ["x", "partial"]
registers = 20
[[stage]]
name = "down"
source = "down.cu"
entry = "down"
grid = "batch"
block = "L"
when = "G > 1"
"""


def staged(text: str = STAGES) -> str:
    """The file above with stages instead of one launch."""
    before, _, after = TEXT.partition("[launch]")
    after = after.partition("[work]")[2]
    lines = [line for line in before.splitlines() if not line.startswith("entry")]
    return "\n".join([*lines, text]) + "[work]" + after


def test_stages(load: Load, tmp_path: Path) -> None:
    """Stages have their own source, arguments and registers, and are left out where ``when`` is false."""
    (tmp_path / "down.cu").write_text("// down\n")
    kernel = load(staged())
    assert kernel.stages == ("up", "down")

    workload = kernel.workload({"N": 128, "kind": "up"})
    two = kernel.plan(workload, first(kernel, P=2, L=32))
    assert [stage.name for stage in two.stages] == ["up", "down"]
    assert two.stages[0].arguments == ("x", "partial")
    assert two.stages[0].declared == Resources(20, compiled=False)
    assert two.stages[1].declared == Resources(20, compiled=False)  # 16 + 2 * P of [resources]
    assert two.stages[1].source.text == "// down\n"
    assert len(two.stages[1].arguments) == 4

    one = kernel.plan(workload, first(kernel, P=4, L=64))
    assert [stage.name for stage in one.stages] == ["up"]


def test_a_plan_needs_a_stage(load: Load) -> None:
    """A configuration for which every stage is left out is an error that names it."""
    text = staged(STAGES.partition('[[stage]]\nname = "down"')[0] + 'when = "P > 100"\n')
    kernel = load(text)
    with pytest.raises(KernelFileError, match=r"every stage is left out \(at rows:N=64,kind=up \[P=4"):
        kernel.plan(kernel.workload({"N": 64, "kind": "up"}), first(kernel))


def test_without_a_default_table_the_first_configuration_counts(load: Load) -> None:
    """A file without [default] starts from the first configuration of the space."""
    before, _, after = TEXT.partition("[default]")
    kernel = load(before + "[launch]" + after.partition("[launch]")[2])
    workload = kernel.workload({"N": 64, "kind": "down"})
    assert kernel.default(workload) == kernel.space(workload)[0]


def test_a_default_takes_derived_names_of_the_tunables_above(load: Load) -> None:
    """[default] may use derived names that need no tunable that is still to come."""
    text = TEXT.replace('H = "G + 1"', 'H = "G + 1"\nhalf = "16 * P // 2"')
    kernel = load(text.replace('L = "min(64, N // 2)"', 'L = "half"'))
    assert kernel.default(kernel.workload({"N": 64, "kind": "up"}))["L"] == 32
    with pytest.raises(KernelFileError, match=r"\[default\] L: expression 'half \+ G': unknown name 'G'"):
        load(text.replace('L = "min(64, N // 2)"', 'L = "half + G"'))


def test_calls_of_derived_names(load: Load) -> None:
    """A file that calls a derived name with parameters is as one that has the expression in full."""
    kernel = load(TEXT)
    per = '"per( x,y )" = "ceil_div(x, y)"\nG = "per(N, P * L)"'
    other = load(TEXT.replace('G = "ceil_div(N, P * L)"', per))
    workload = kernel.workload({"N": 64, "kind": "up"})
    assert list(other.space(workload)) == list(kernel.space(workload))
    for configuration in kernel.space(workload):
        assert other.launches(workload, configuration) == kernel.launches(workload, configuration)


STATED = """[analytical]
P = 2
L = "64 if N > 64 else 32"
shuffle = "kind == 'up'"
mode = "slow"
[launch]
"""


def test_the_stated_analytical_answer(load: Load) -> None:
    """[analytical] is evaluated as [default] is; a file without it states none."""
    kernel = load(TEXT.replace("[launch]\n", STATED))
    workload = kernel.workload({"N": 64, "kind": "down"})
    stated = kernel.stated(workload)
    assert stated is not None
    assert dict(stated) == {"P": 2, "L": 32, "shuffle": False, "mode": "slow"}
    assert load(TEXT).stated(workload) is None


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("P", {"P": 4, "L": 64, "mode": "slow"}),
        ("L", {"P": 2, "L": 32, "mode": "slow"}),
        ("PL", {"P": 4, "L": 64, "mode": "slow"}),
        ("PLs", {"P": 4, "L": 64, "mode": "slow"}),
        ("m", {"P": 2, "L": 64, "mode": "fast"}),
    ],
)
def test_an_analytical_answer_takes_what_it_leaves_out_from_the_default(
    load: Load, turned: bool, left_out: str, expected: dict[str, Any]
) -> None:
    """Expressions of [default] see the answer's own values, in whatever order: L is 16 P, whoever gives P."""
    table, *given, launch = (line for line in STATED.splitlines() if line[0] not in left_out)
    lines = [table, *(reversed(given) if turned else given), launch, ""]
    text = TEXT.replace('L = "min(64, N // 2)"', 'L = "16 * P"').replace("[launch]\n", "\n".join(lines))
    kernel = load(text)
    (answer,) = kernel.stated_answers(kernel.workload({"N": 128, "kind": "down"}), "")
    assert dict(answer) == expected | {"shuffle": False}


def test_the_default_as_analytical_answer(load: Load) -> None:
    """It is stated after those of [analytical], and the rules answer where it cannot be launched."""
    text = TEXT.replace('family = "scan"', 'family = "scan"\nanalytical = "default"')
    for written, before in (("[launch]\n", 0), (STATED, 1)):
        kernel = load(text.replace("[launch]\n", written))
        workload = kernel.workload({"N": 64, "kind": "up"})
        stated = kernel.stated_answers(workload, "NVIDIA H200")
        assert len(stated) == before + 1
        assert stated[before] == kernel.default(workload)
        assert kernel.rule_roles == kernel.roles


@pytest.mark.parametrize(
    ("key", "change", "trouble"),
    [
        ("default", "no [default]", "analytical = 'default' in [kernel] needs [default]"),
        ("defualt", "", "'defualt' is not one of true, false, default; did you mean 'default'?"),
    ],
)
def test_wrong_words_for_the_analytical_answer(load: Load, key: str, change: str, trouble: str) -> None:
    """The key and what would be right are named."""
    text = TEXT.replace('family = "scan"', f'family = "scan"\nanalytical = "{key}"')
    if change == "no [default]":
        text = re.sub(r"\[default\]\n(?:\w.*\n)+", "", text)
    with pytest.raises(KernelFileError) as error:
        load(text)
    assert trouble in str(error.value)


SEVERAL = STATED.replace("[analytical]", "[[analytical]]").replace("[launch]\n", "")
SEVERAL += SEVERAL.replace("P = 2", "P = 4") + SEVERAL + "[launch]\n"


def test_several_analytical_answers(load: Load) -> None:
    """[[analytical]] states them in order of preference; of equal ones the first counts."""
    kernel = load(TEXT.replace("[launch]\n", SEVERAL))
    workload = kernel.workload({"N": 64, "kind": "down"})
    assert [one["P"] for one in kernel.stated_answers(workload, "")] == [2, 4]
    assert kernel.stated(workload) == kernel.stated_answers(workload, "")[0]
    assert list(kernel.recipe.stated) == [f"[[analytical]] #{i}" for i in (1, 2, 3)]
    several = with_places(kernel, {STREAM_PRIORITY: (0, 1)})
    assert [one[STREAM_PRIORITY] for one in several.stated_answers(workload, "")] == [0, 0]


def test_analytical_answers_with_conditions(load: Load) -> None:
    """Each is an answer where its own ``when`` holds, over sizes, batch and derived names."""
    text = SEVERAL.replace("P = 2", 'when = "N > 64 or batch == 3"\nP = 2', 1)
    kernel = load(TEXT.replace("[launch]\n", text))
    for sizes, batch, expected in ((64, 1, [4, 2]), (64, 3, [2, 4]), (128, 1, [2, 4])):
        workload = kernel.workload({"N": sizes, "kind": "down"}, batch)
        assert [one["P"] for one in kernel.stated_answers(workload, "")] == expected


@pytest.mark.parametrize(
    ("when", "trouble"), [("P > 1", "unknown name 'P'"), ("N >", "[[analytical]] #1 when: ")]
)
def test_wrong_conditions_of_analytical_answers(load: Load, when: str, trouble: str) -> None:
    """Tunables are none of the names, and the key is named."""
    text = SEVERAL.replace("P = 2", f'when = "{when}"\nP = 2', 1)
    with pytest.raises(KernelFileError) as error:
        load(TEXT.replace("[launch]\n", text))
    assert trouble in str(error.value)


@pytest.mark.parametrize(
    ("given", "trouble"),
    [
        ("3", "[analytical]: must be a table"),
        ("[]", "[analytical]: must be a list of at least one"),
        ("[{ P = 2 }, 3]", "[[analytical]] #2: must be a table"),
    ],
)
def test_analytical_answers_that_are_no_tables(load: Load, given: str, trouble: str) -> None:
    """A table, or a list of tables, would be right."""
    with pytest.raises(KernelFileError) as error:
        load(f"analytical = {given}\n{TEXT}")
    assert str(error.value).endswith(trouble)


def test_rules_that_leave_nothing(load: Load) -> None:
    """An empty space names the workload, the rule and the file."""
    kernel = load(TEXT.replace("P * L <= 2 * N", "P * L > 100 * N"))
    with pytest.raises(
        EmptySpaceError, match=r"rows:N=64,kind=up: the rule 'P \* L > 100 \* N' .*kernel.toml"
    ):
        kernel.space(kernel.workload({"N": 64, "kind": "up"}))


def test_rules_without_result(load: Load) -> None:
    """A rule that divides by zero somewhere is an error of the file."""
    kernel = load(TEXT.replace("P * L <= 2 * N", "N // (P - 2) > 0"))
    workload = kernel.workload({"N": 64, "kind": "up"})
    with pytest.raises(KernelFileError, match=r"\[constraints\] rules: .*division by zero"):
        kernel.space(workload)
    with pytest.raises(KernelFileError, match=r"\[constraints\] rules: .*division by zero"):
        kernel.broken_rule(workload, first(kernel, P=2))


@pytest.mark.parametrize(
    ("stage", "trouble"),
    [
        (
            'arguments = ["y"]',
            "[[stage]] 1 (up) arguments: no argument is called 'y'; choose from x, rows",
        ),
        ("nam = 1", "[[stage]] 1 nam: unknown key; did you mean 'name'?"),
        ('when = "Q"', "[[stage]] 1 (up) when: expression 'Q': unknown name 'Q'"),
        ('source = "none.cu"', "[[stage]] 1 (up) source: "),
    ],
)
def test_mistakes_in_stages(load: Load, stage: str, trouble: str) -> None:
    """Mistakes in stages name the stage."""
    lines = f'[[stage]]\nname = "up"\nentry = "up"\ngrid = 1\nblock = 32\n{stage}\n'
    with pytest.raises(KernelFileError) as error:
        load(staged(lines))
    assert trouble in str(error.value)


def test_stages_and_launch_exclude_each_other(load: Load) -> None:
    """A file has [launch] or [[stage]] tables."""
    with pytest.raises(KernelFileError, match="stand instead of"):
        load(TEXT + STAGES)
    with pytest.raises(KernelFileError, match=r"\[launch\], or \[\[stage\]\] tables"):
        load(staged(""))


def test_references_are_checked(load: Load) -> None:
    """Expressions of [problem.reference] are over input buffers, one for every output."""
    text = TEXT.replace('name = "scan"\nbatch', 'name = "expression"\nbatch')
    good = text.replace("[[argument]]", '[problem.reference]\nx = "2 * x + N"\n[[argument]]', 1)
    assert load(good).problem.reference == (("x", "2 * x + N"),)
    for old, trouble in (('x = "2', 'z = "2'), ("* x", "* partial")):
        with pytest.raises(KernelFileError, match=r"\[problem.reference\]"):
            load(good.replace(old, trouble))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing, binary, oversized or foreign file is an error that names it."""
    with pytest.raises(KernelFileError, match=r"none.toml: cannot be read: No such file"):
        load_kernel_file(tmp_path / "none.toml")
    with pytest.raises(KernelFileError, match="is not a file"):
        load_kernel_file(tmp_path)
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(KernelFileError, match="is not a file"):
        load_kernel_file(tmp_path / "pipe.toml")
    for name, content, trouble in (
        ("binary.toml", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("large.toml", b"#" * (2**20 + 1), "larger than 1 MiB"),
        ("empty.toml", b"", r"\[kernel\]: is needed"),
        ("marked.toml", "\ufeff".encode(), r"\[kernel\]: is needed"),
        (
            "deep.toml",
            b"a = " + b"[" * 3000 + b"]" * 3000,
            r"deep.toml: not valid TOML: .*nested too deeply",
        ),
        ("digits.toml", b"a = " + b"1" * 5000, r"digits.toml: not valid TOML: .*5000 digits"),
        ("hexadecimal.toml", b"a.b = [0x" + b"f" * 5000 + b"]", r"hexadecimal.toml: a.b: a whole number"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(KernelFileError, match=trouble):
            load_kernel_file(tmp_path / name)
    catalog = Catalog.load(search_path=[tmp_path])
    assert len(catalog.broken) == 8
    assert not catalog.kernels


def test_many_mistakes_are_listed_together(load: Load) -> None:
    """Up to five wrong keys are reported at once, each on its own line."""
    with pytest.raises(KernelFileError) as error:
        load('[kernel]\nname = "x"\n[a]\n[b]\n[c]\n[d]\n[e]\n[f]\n')
    lines = str(error.value).splitlines()
    assert len(lines) == 6
    assert lines[-1].endswith("more")


def test_the_schema_describes_every_key() -> None:
    """Editors complete from the JSON Schema: every key of every table has a description."""
    schema = json_schema()
    tables = [schema, *schema["$defs"].values()]
    assert len(tables) > 10
    for table in tables:
        assert table["description"]
        assert table["additionalProperties"] is False
        for name, key in table["properties"].items():
            table_of_key = schema["$defs"].get(key.get("$ref", "").rpartition("/")[2], {})
            assert key.get("description") or table_of_key.get("description"), f"{table['title']} {name}"


FILES = ("rows", "forms", "copy", "sums", "filter")


@dataclass(frozen=True)
class Table:
    """Mistakes of one kind.

    Attributes:
        file: that they are made in.
        what: they are.
        cases: a text of the file, another for it, and what the message says.
        change: further texts, and others for them.
        step: at which a mistake is found.
        sizes: of the workload that is planned.
        batch: of that.
        configuration: the one that is planned.
        at: what each message says of these.
    """

    file: str
    what: str
    cases: tuple[tuple[str, str, str], ...]
    change: tuple[tuple[str, str], ...] = ()
    step: str = "load"
    sizes: dict[str, Any] = field(default_factory=dict)
    batch: int | None = None
    configuration: dict[str, Any] = field(default_factory=dict)
    at: str = ""

    def do(self, kernel: KernelFile) -> None:
        workloads = kernel.workloads()
        if self.step == "default":
            _ = [kernel.default(one) for one in workloads]
        elif self.step == "stated":
            kernel.stated(workloads[0])
        elif self.step == "space":
            _ = [kernel.plan(workloads[0], one) for one in kernel.space(workloads[0])]
        elif self.step == "plan":
            kernel.plan(kernel.workload(self.sizes, batch=self.batch), Configuration(self.configuration))


TABLES = [Table(**one) for one in tomllib.loads((FOLDER / "refused.toml").read_text())["table"]]
STRANGE = [  # values
    *("3", "-1", "1e400", "nan", "true", "''", "'x'"),
    *("[]", "{}", "[[1]]", "[{}]", "1979-05-27", "{ a = 1 }"),
]


@pytest.fixture(scope="module")
def loaders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Load]:
    return {name: loader(name, tmp_path_factory.mktemp(name)) for name in FILES}


@pytest.mark.parametrize(
    ("table", "case"),
    [pytest.param(one, case, id=f"{one.file}-{case[2]}") for one in TABLES for case in one.cases],
)
def test_mistakes_are_named(loaders: dict[str, Load], table: Table, case: tuple[str, str, str]) -> None:
    """The message has the file, the key, what would be right, and the configuration where it takes one."""
    old, new, says = case
    inside = any(old in other for _, other in table.change)
    change = [(one, other.replace(old, new) if inside else other) for one, other in table.change]
    text = changed(text_of(table.file), *change, *([] if inside else [(old, new)]))
    if table.step != "load":
        loaders[table.file](text)
    with pytest.raises(KernelFileError) as error:
        table.do(loaders[table.file](text))
    assert says in str(error.value)
    assert table.at in str(error.value)
    assert "kernel.toml" in str(error.value)


@pytest.mark.parametrize("name", ["rows", "copy"])
def test_no_value_escapes_the_error_tree(loaders: dict[str, Load], name: str) -> None:
    """Whatever value stands at whichever key, the file works or ends in an error of the package."""
    lines = text_of(name).splitlines()
    for number, line in enumerate(lines):
        for strange in STRANGE if " = " in line else ():
            other = f"{line.partition(' = ')[0]} = {strange}"
            try:
                kernel = loaders[name]("\n".join([*lines[:number], other, *lines[number + 1 :]]))
                workload = kernel.workloads()[-1]
                space = kernel.space(workload)
                for configuration in (kernel.default(workload), *space[:: max(1, len(space) // 3)]):
                    kernel.plan(workload, configuration)
            except InputError as error:
                assert str(error), other  # noqa: PT017 - some of these values are right
            except Exception as error:
                raise AssertionError(other) from error


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"rows.cu"', f'"{"r" * 5000}.cu"', "cannot be read: File name too long"),
        ('["shared"]', f'["{"s" * 5000}"]', "[kernel] headers: no such folder"),
        ("N = [64, 128]", f"N = {list(range(9000))}", "[problem.sizes]: 18000 combinations of sizes"),
    ],
    ids=["name", "folder", "sizes"],
)
def test_what_is_too_long_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    """Names that no file system has, and more workloads than anybody tunes."""
    with pytest.raises(KernelFileError) as error:
        loader("rows", tmp_path)(changed(text_of("rows"), (old, new)))
    assert says in str(error.value)
    assert str(tmp_path / "kernel.toml") in str(error.value)
