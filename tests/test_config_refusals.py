"""Kernel files with a mistake: each names the file, the key and what would be right."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomllib
from kernel_texts import FOLDER, Load, changed, loader, text_of

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, KernelFileError
from tuner.model.plan import Configuration

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
