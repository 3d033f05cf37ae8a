"""The catalogue: which kernel a name means, how a workload is written, and which tuner it belongs to."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from cli_process import SMALL, tuner

from tuner.application.keys import ArrayForm, workload_for
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog, default_search_path, load_kernel_file, origin
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.source_folder import PackageBuild, content_of, decisive_files, kernels_root, own_build
from tuner.model.errors import InputError, KernelFileError, UnknownNameError
from tuner.model.records import PROTOCOL, binding, fingerprint
from tuner.model.version import VERSION

TEXT = """
[kernel]
name = "{name}"
description = "{description}"
source = "k.cu"
entry = "k"
[problem]
batch = 7
[problem.sizes]
N = [64, 128]
[[argument]]
buffer = "x"
dtype = "float32"
shape = ["batch", "N"]
role = "inout"
[tunables]
L = [32, 64]
[launch]
grid = 1
block = "L"
[work]
bytes = 1
operations = 1
"""


def add(path: Path, name: str, description: str = "") -> Path:
    """Write a kernel file, with its source beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEXT.format(name=name, description=description))
    (path.parent / "k.cu").write_text("// code\n")
    return path


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Two kernels of one folder."""
    add(tmp_path / "scan" / "kernel.toml", "scan-lf")
    add(tmp_path / "fft.toml", "fft")
    return Catalog.load(search_path=[tmp_path])


def test_sizes_of_another_kernel_name_it() -> None:
    """A size that a kernel refuses and another one of its problem takes is refused with its name."""
    shipped = Catalog.load(search_path=[kernels_root()])
    with pytest.raises(UnknownNameError, match=r"or take fft or fft-any, which solves this too$"):
        shipped.workload("fft-large:N=64")
    with pytest.raises(UnknownNameError, match=r"16384, .*8388608, or take fft-long, which solves this too$"):
        shipped.workload("fft-large:N=16385")


def test_only_kernels_that_extend_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for one that takes other sizes reads files that name the kernel, until one takes them."""
    read: list[str] = []

    def load(path: Path) -> KernelFile:
        read.append(path.parent.name)
        return load_kernel_file(path)

    monkeypatch.setattr("tuner.kernel_files.catalog.load_kernel_file", load)
    assert Catalog.load().workload("fft:N=1000").kernel == "fft-any"
    assert set(read) == {"fft", "fft-any"}
    assert Catalog.load().workload("fft:N=9001").kernel == "fft-long"  # the last one
    few = set(read)
    kernels = Catalog.load().kernels
    assert few >= {"fft", *(name for name, kernel in kernels.items() if "fft" in kernel.recipe.extends)}
    assert len(few) < len(kernels) / 4


def test_a_kernel_that_extends_another_takes_what_that_refuses() -> None:
    """Lengths and types that fft has not are those of kernels that extend it; what none takes is refused."""
    shipped = Catalog.load(search_path=[kernels_root()])
    assert str(shipped.workload("fft:N=1024")) == "fft:N=1024"
    assert str(shipped.workload("fft:N=1000,direction=inverse")) == "fft-any:N=1000,direction=inverse"
    for shape, dtype, taken in (
        ((3, 1024), "complex64", "fft"),
        ((3, 1000), "complex64", "fft-any"),
        ((3, 1024), "complex128", "fft-any"),
        ((3, 6771), "complex64", "fft-long"),  # convolved over 16384 points: of few rows in passes
        ((65, 6771), "complex64", "fft-any"),
        ((3, 6771), "complex128", "fft-long"),  # 3 * 37 * 61: more numbers than a block has registers for
        ((3, 6579), "complex128", "fft-long"),  # 43 is convolved by 42 points
        ((65, 6579), "complex128", "fft-any"),
        ((3, 16384), "complex64", "fft-large"),
        ((3, 16384), "complex128", "fft-long"),
        ((3, 9001), "complex64", "fft-long"),
    ):
        at = partial(workload_for, forms=[ArrayForm(shape, dtype)], sizes={})
        assert shipped.workload_of(shipped.kernel("fft"), at).kernel == taken
    for spec, taken in (
        ("scan-lf:N=67108864", "scan-long"),
        ("scan-ks:N=64,dtype=int64", "scan-long"),
        ("tridiag-wm:N=4096", "tridiag-wm"),
        ("tridiag-wm:N=5000", "tridiag-large"),
        ("fft-any:N=6771,dtype=complex128", "fft-long"),
        ("fft-real:N=6771,dtype=float64", "fft-real-long"),
        ("fft-real:N=6771", "fft-real"),
        ("tridiag-periodic:N=4096", "tridiag-periodic"),
        ("tridiag-periodic:N=8192", "tridiag-periodic-large"),
        ("tridiag-several:N=2048,K=3", "tridiag-several"),
        ("tridiag-several:N=8192,K=3", "tridiag-several-large"),
    ):
        assert shipped.workload(spec).kernel == taken
    with pytest.raises(UnknownNameError, match="has no K=5; choose K from 2, 3, 4"):
        shipped.workload("tridiag-several:N=8192,K=5")
    with pytest.raises(
        UnknownNameError,
        match=r"^fft has no N=16777217.*fft-any, fft-large, fft-long: .* from 128 to 16777216$",
    ):
        shipped.workload("fft:N=16777217")
    with pytest.raises(InputError, match="x has dtype float32; it must be complex64"):
        shipped.workload_of(
            shipped.kernel("fft"), partial(workload_for, forms=[ArrayForm((3, 1024), "float32")], sizes={})
        )


def test_folders_hold_files_and_folders(catalog: Catalog) -> None:
    """A folder's kernels are its NAME.toml and its NAME/kernel.toml, sorted by name."""
    assert catalog.names == ("fft", "scan-lf")
    assert catalog.kernel("fft").name == "fft"
    assert not catalog.broken


def test_without_a_workload_those_of_the_files_are_meant(tmp_path: Path) -> None:
    """A kernel of a file is taken at its first size; a file is no name of a kernel."""
    catalog = Catalog.load([add(tmp_path / "mine.toml", "mine")])
    assert [str(workload) for workload in catalog.workloads(())] == ["mine:N=64"]
    assert [str(workload) for workload in catalog.workloads(("fft:N=64",))] == ["fft:N=64"]
    assert [workload.kernel for workload in Catalog.load().workloads(())] == ["scan-lf", "tridiag-wm", "fft"]
    with pytest.raises(UnknownNameError, match="did you mean 'mine'"):
        catalog.workload("mine.toml")


def test_a_size_of_one_value_may_be_left_out(tmp_path: Path) -> None:
    """There is nothing to choose."""
    file = add(tmp_path / "mine.toml", "mine")
    file.write_text(file.read_text().replace("[64, 128]", "[64]"))
    assert str(Catalog.load([file]).workload("mine")) == "mine:N=64"


def test_later_places_override_earlier_ones(tmp_path: Path) -> None:
    """The last folder with a name counts, and a file given by hand beats all folders."""
    add(tmp_path / "shipped" / "a" / "kernel.toml", "a", "shipped")
    add(tmp_path / "shipped" / "b" / "kernel.toml", "b", "shipped")
    add(tmp_path / "system" / "a.toml", "a", "system")
    add(tmp_path / "user" / "b.toml", "b", "user")
    mine = add(tmp_path / "mine.toml", "b", "by hand")
    folders = [tmp_path / "shipped", tmp_path / "system", tmp_path / "user", tmp_path / "absent"]

    catalog = Catalog.load(search_path=folders)
    assert [catalog.kernel(n).description for n in catalog.names] == ["system", "user"]
    assert Catalog.load([mine], folders).kernel("b").description == "by hand"


def test_a_broken_file_hides_no_other(tmp_path: Path) -> None:
    """A broken file is noted; the other kernels work; asked for by path it raises."""
    add(tmp_path / "good.toml", "good")
    bad = tmp_path / "bad.toml"
    bad.write_text("[kernel\n")
    add(tmp_path / "again.toml", "good")

    catalog = Catalog.load(search_path=[tmp_path])
    assert catalog.names == ("good",)
    assert [type(error) for error in catalog.broken] == [KernelFileError, KernelFileError]
    assert str(bad) in str(catalog.broken[0])
    assert "'good' is taken by" in str(catalog.broken[1])
    with pytest.raises(UnknownNameError, match=r"could not be read: 2; .*bad.toml: not valid TOML"):
        catalog.kernel("bad")
    with pytest.raises(KernelFileError, match="not valid TOML"):
        Catalog.load([bad], [tmp_path])


def test_unknown_kernels_say_what_to_do(catalog: Catalog) -> None:
    """A name the catalogue does not have is answered with the nearest, or with how a file is added."""
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'scan-fl'; did you mean 'scan-lf'\?"):
        catalog.kernel("scan-fl")
    with pytest.raises(UnknownNameError, match="`tuner kernels add FILE`"):
        Catalog.load(search_path=[]).kernel("x")


@pytest.mark.parametrize(
    ("spec", "text", "batch"),
    [
        ("fft:N=64", "fft:N=64", 7),
        ("scan-lf:N=128,batch=100", "scan-lf:N=128", 100),
        ("  fft : batch = 3 ,  N=64 , ", "fft:N=64", 3),
    ],
)
def test_workloads_are_written_as_name_and_sizes(catalog: Catalog, spec: str, text: str, batch: int) -> None:
    """Sizes and batch come in any order, with or without spaces."""
    workload = catalog.workload(spec)
    assert str(workload) == text
    assert workload.batch == batch


@pytest.mark.parametrize(
    ("spec", "kind", "trouble"),
    [
        ("fff:N=64", UnknownNameError, "unknown kernel 'fff'"),
        ("", UnknownNameError, "unknown kernel ''"),
        ("fft", UnknownNameError, "size N is missing, as in fft:N=64; choose N from 64, 128"),
        ("fft:N=65", UnknownNameError, "fft has no N=65; choose N from 64, 128"),
        ("fft:M=64", UnknownNameError, "unknown size 'M'; choose from N, batch"),
        ("fft:64", InputError, "'64' is not of the form size=value, as in fft:N=64"),
        ("fft:N=", InputError, "'N=' is not of the form size=value"),
        ("fft:N=64,N=128", InputError, "N is given twice"),
        ("fft:N=64,batch=x", InputError, "batch=x is not a whole number"),
        ("fft:N=64,batch=-1", InputError, "batch=-1 is not a whole number"),
        ("fft:N=64,batch=0", InputError, "at least 1"),
        ("fft:N=64,batch=1" + "0" * 18, InputError, "batch=1000000000000000000 is too large"),
    ],
)
def test_workloads_that_are_not(catalog: Catalog, spec: str, kind: type[Exception], trouble: str) -> None:
    """What is wrong in a workload's text is named, with the choices."""
    with pytest.raises(kind) as error:
        catalog.workload(spec)
    assert trouble in str(error.value)


def test_the_search_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The path goes from the package over the system to the user; origins have their names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folders = default_search_path()
    assert folders == (kernels_root(), Path("/etc/tuner/kernels.d"), tmp_path / "tuner" / "kernels.d")
    assert [origin(folder / "a" / "kernel.toml") for folder in folders] == ["shipped", "system", "user"]
    assert origin(tmp_path / "a.toml") == "file"


PRAGMAS = """#pragma tuner problem(N = [64])
#pragma tuner inout x: float32[N]
#pragma tuner values B: 32, 64
#pragma tuner launch grid(1) block(B)
template <int B = 64>
__global__ void k(float* x) {}
"""


def test_sources_with_pragmas_are_kernel_files(tmp_path: Path) -> None:
    """A folder's source with pragmas counts; one without belongs to the kernel file beside it."""
    add(tmp_path / "whole" / "kernel.toml", "whole")
    (tmp_path / "whole" / "kernel.cu").write_text("__global__ void k(float* x) {}\n")
    (tmp_path / "flat.cu").write_text(PRAGMAS)
    (tmp_path / "header.cu").write_text("// nothing\n")
    for name in ("deep", "none"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.cu").write_text(PRAGMAS if name == "deep" else "// nothing\n")

    catalog = Catalog.load(search_path=[tmp_path])

    assert catalog.names == ("deep", "flat", "whole")
    (broken,) = catalog.broken
    assert str(tmp_path / "none" / "kernel.cu") in str(broken)


def test_shipped_kernels_are_found() -> None:
    """The package's own kernels are found from a checkout; none is broken or called unlike its folder."""
    catalog = Catalog.load(search_path=[kernels_root()])
    files = [*kernels_root().glob("*/kernel.toml"), *kernels_root().glob("*/kernel.cu")]
    assert catalog.names == tuple(sorted(path.parent.name for path in files))
    assert len(files) > 8
    assert not catalog.broken


def test_content_is_of_every_file_that_decides_numbers(tmp_path: Path) -> None:
    """Python, CUDA and tables of all rooms count: one byte or another name is another content."""
    found = decisive_files()
    for name in ("pool/pool.py", "power/__init__.py", "policies/surrogate/beliefs.json"):
        assert name in found
    assert {Path(name).suffix for name in found} == {".py", ".cu", ".cuh", ".toml", ".csv", ".json"}
    assert own_build() == PackageBuild(VERSION, PROTOCOL, content_of(found))
    changed = tmp_path / "greedy.py"
    changed.write_bytes(found["policies/greedy.py"].read_bytes() + b" ")
    others = (
        {**found, "policies/greedy.py": changed},
        {("policies/other.py" if name == "policies/greedy.py" else name): at for name, at in found.items()},
        {name: path for name, path in found.items() if name != "policies/greedy.py"},
    )
    assert len({own_build().content, *map(content_of, others)}) == 4


def test_a_run_says_which_package_measured_it(tmp_path: Path) -> None:
    """The content is stored with the conditions; it binds nothing, so that a run goes on after a release."""
    database = tmp_path / "a.db"
    for resume, budget in (((), "1"), (("--resume",), "2")):
        words = ("--policy", "random", "--objective", "time", "--budget", budget, *resume)
        assert tuner("run", *SMALL, *words, "--database", database).exit_code == 0
    with Store(database) as store:
        conditions = store.history()[0].conditions
    assert conditions["content"] == own_build().content
    other = {**conditions, "content": "0" * 64}
    assert fingerprint(other) == fingerprint(binding(conditions))
    assert fingerprint({**conditions, "protocol": 0}) != fingerprint(conditions)


def test_help_reads_no_package() -> None:
    """What is asked for without a run does not take the time of hashing."""
    code = (
        "import sys; from tuner.cli.main import main; main(['run', '--help'], standalone_mode=False);"
        " from tuner.kernel_files import source_folder as own; assert not own.own_build.cache_info().currsize"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
