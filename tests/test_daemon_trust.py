"""Kernel directories: taken only where nobody but root and the service's user can change what is in them."""

import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.source_folder import kernels_root
from tuner.kernel_files.trust import kernel_directories, service_owners, trusted, usable_directories
from tuner.model.errors import InputError

ME = frozenset((0, os.geteuid()))
STRANGER = 54_321  # a user whom nobody trusts
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A directory as one below the root would be; what is above it is not looked at."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "kernels.d"
    (folder / "mine").mkdir(parents=True, mode=0o755)
    (folder / "mine/kernel.toml").write_text("x")
    (folder / "flat.toml").write_text("x")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path


def refused(top: Path, says: str, folder: str = "kernels.d") -> str:
    with pytest.raises(InputError) as caught:
        trusted(top / folder, below=top)
    assert says in str(caught.value)
    return str(caught.value)


def test_what_only_owners_can_change_is_taken(top: Path) -> None:
    """A directory of root or the service's user that others may read is taken, by its own path."""
    assert trusted(top / "kernels.d", below=top) == (top / "kernels.d").resolve()
    assert service_owners() == ME


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777, 0o777, 0o2775])
@pytest.mark.parametrize("at", [".", "kernels.d", "kernels.d/mine"])
def test_directories_that_others_write_are_refused(top: Path, at: str, mode: int) -> None:
    """Wherever on the way or inside others may write, sticky or not, path and remedy are named."""
    (top / at).chmod(mode)

    said = refused(top, f"{(top / at).resolve()}: can be written by others")
    sticky = bool(mode & stat.S_ISVTX)
    assert (f"chmod go-w {(top / at).resolve()}" in said) != sticky


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_files_that_others_write_are_refused(top: Path, mode: int) -> None:
    """A file that others may write is refused, whatever the directory allows."""
    (top / "kernels.d/mine/kernel.toml").chmod(mode)

    refused(top, "kernel.toml: can be written by others")


@needs_root
@pytest.mark.parametrize("at", [".", "kernels.d", "kernels.d/mine", "kernels.d/mine/kernel.toml"])
def test_what_belongs_to_others_is_refused(top: Path, at: str) -> None:
    """What another user owns is his to change, whatever its mode says now."""
    os.chown(top / at, STRANGER, 0)

    said = refused(top, f"belongs to user {STRANGER}")
    assert f"chown -h root {(top / at).resolve()}" in said


@needs_root
def test_the_owner_may_be_the_service(top: Path) -> None:
    """What the service's own user owns is taken, and root's always is."""
    os.chown(top / "kernels.d/mine", STRANGER, 0)

    assert trusted(top / "kernels.d", {0, STRANGER}, below=top).is_dir()


def test_a_link_is_followed_and_its_target_judged(top: Path) -> None:
    """A link to a directory counts as what it leads to, and each step on that way is looked at."""
    other = top / "else"
    (other / "kernels").mkdir(parents=True)
    (top / "link").symlink_to("else/../else/kernels")
    assert trusted(top / "link", below=top) == (other / "kernels").resolve()

    other.chmod(0o777)
    refused(top, "else: can be written by others", "link")


def test_rights_that_others_need_are_not_to_be_taken(top: Path) -> None:
    """Where others are meant to write the remedy is to go elsewhere: no command takes their right away."""
    top.chmod(0o1777)
    with pytest.raises(InputError, match="move what is to be used out of it") as caught:
        trusted(top / "kernels.d", below=top)
    assert "chmod" not in str(caught.value)


def test_links_inside_are_followed(top: Path) -> None:
    """A link inside that leads to what others can write is refused, also behind a further link."""
    outside = top / "outside"
    outside.mkdir()
    (outside / "scan.cu").write_text("x")
    (top / "kernels.d/mine/scan.cu").symlink_to(outside / "scan.cu")
    (top / "kernels.d/more").symlink_to("../outside")
    assert trusted(top / "kernels.d", below=top).is_dir()

    (outside / "scan.cu").chmod(0o666)
    refused(top, "outside/scan.cu: can be written by others")


@needs_root
def test_a_link_of_others_is_refused(top: Path) -> None:
    """A link belongs to somebody too."""
    link = top / "kernels.d/link.toml"
    link.symlink_to("flat.toml")
    os.chown(link, STRANGER, 0, follow_symlinks=False)

    refused(top, f"link.toml: belongs to user {STRANGER}")


def test_endless_links_end(top: Path) -> None:
    """Links in a circle are refused with words; a link to a directory above itself does no harm."""
    (top / "kernels.d/up").symlink_to("..")
    assert trusted(top / "kernels.d", below=top).is_dir()

    (top / "kernels.d/round").symlink_to("round")
    refused(top, "leads through more than 40 symbolic links")


def test_only_files_and_directories_are_taken(top: Path) -> None:
    """A pipe that a reader would wait on, a missing directory, a file instead: all refused with words."""
    refused(top, "cannot be used: No such file", "nowhere")
    refused(top, "is not a directory", "kernels.d/flat.toml")
    refused(top, "cannot be used: Not a directory", "kernels.d/flat.toml/x")
    refused(top, "cannot be used: embedded null", "a\0b")
    os.mkfifo(top / "kernels.d/pipe.toml", 0o600)
    refused(top, "pipe.toml: is neither a file nor a directory")
    with pytest.raises(InputError, match="must be a path from the root"):
        trusted(Path("kernels.d"))


def test_a_huge_directory_is_refused(top: Path) -> None:
    """Who names a directory that holds the world is told to name a smaller one."""
    assert trusted(top / "kernels.d", below=top, most=4).is_dir()  # itself, two files and a directory
    with pytest.raises(InputError, match="holds more than 3 files"):
        trusted(top / "kernels.d", below=top, most=3)


@needs_root
def test_everything_up_to_the_root_counts(top: Path) -> None:
    """Without further words the way begins at the root: what is under a directory open to all is refused."""
    top.chmod(0o777)

    with pytest.raises(InputError, match="can be written by others"):
        trusted(top / "kernels.d")


def test_missing_directories_are_left_out(top: Path) -> None:
    """Of several directories those that are not there need not be; one that leads nowhere is refused."""
    assert kernel_directories([top / "none", top / "kernels.d"], below=top) == (
        (top / "kernels.d").resolve(),
    )

    (top / "none").symlink_to("nowhere")
    with pytest.raises(InputError, match="nowhere: cannot be used"):
        kernel_directories([top / "none"], below=top)


def test_measured_answers_stay_in_kernel_directories(top: Path) -> None:
    """A file of answers may not be a link that leads out of the directories that were looked at."""
    folder = top / "kernels.d" / "mine"
    (top / "outside").mkdir()
    (top / "outside" / "best.csv").write_text("N,P\n")
    (folder / "best.csv").symlink_to("../../outside/best.csv")
    text = (
        (kernels_root() / "scan-lf" / "kernel.toml")
        .read_text()
        .replace('source = "scan.cu"', 'source = "k.cu"')
    )
    (folder / "kernel.toml").write_text(text.replace('file = "measured.csv"', 'file = "best.csv"'))
    shutil.copytree(kernels_root() / "common", top / "kernels.d/common")
    with pytest.raises(InputError, match=r"'best\.csv' leads to .*outside/best\.csv, out of the kernel dir"):
        kernel_directories([top / "kernels.d"], below=top)


@pytest.mark.parametrize("source", ["../../outside/scan.cu", "{top}/outside/scan.cu"])
def test_sources_stay_in_kernel_directories(top: Path, source: str) -> None:
    """A kernel file cannot name a source outside the directories that were looked at."""
    shipped = kernels_root() / "scan-lf"
    text = (shipped / "kernel.toml").read_text()
    (top / "outside").mkdir()
    (top / "kernels.d/mine/kernel.toml").write_text(
        text.replace('source = "scan.cu"', f'source = "{source.format(top=top)}"')
    )
    shutil.copytree(kernels_root() / "common", top / "kernels.d/common")
    with pytest.raises(InputError, match=r"outside/scan\.cu, out of the kernel directories"):
        kernel_directories([top / "kernels.d"], below=top)
    assert kernel_directories([top / "kernels.d", top / "outside"], below=top)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('x = "in float32[N]"', "x = \"in float32[N] = file('../../outside/x.npy')\""),
        ('x = "in float32[N]"', "x = \"in float32[N] = sorted(file('../../outside/x.npz', 'a'))\""),
        ("[problem]", '[problem]\nreference_function = "../../outside/right.py:right"'),
        ("[problem]", '[problem]\ntolerance = 1\nlaw = "../../outside/laws.py:law"'),
        ("[problem]", "[problem]\nreference.y = '2 * file(\"../../outside/y.npy\")'"),
    ],
)
def test_data_and_functions_stay_in_kernel_directories(top: Path, old: str, new: str) -> None:
    """The service reads no data and runs no Python file outside of its kernel directories."""
    text = """
        [kernel]
        source = "k.cu"
        [problem]
        sizes.N = [4]
        [arguments]
        x = "in float32[N]"
        y = "out float32[N]"
        [launch]
        grid = 1
        block = 1
        """
    (top / "outside").mkdir()
    (top / "kernels.d/mine/kernel.toml").write_text(text)
    assert kernel_directories([top / "kernels.d"], below=top)
    (top / "kernels.d/mine/kernel.toml").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=r"outside/\w+\.\w+, out of the kernel directories") as caught:
        kernel_directories([top / "kernels.d"], below=top)
    assert "move it beside kernel.toml" in str(caught.value)
    assert kernel_directories([top / "kernels.d", top / "outside"], below=top)


@pytest.mark.parametrize(
    "pragma",
    [
        'check function "../../outside/right.py:right"',
        'toml kernel.include_paths = ["../../outside"]',
        "input z: float32[N] = file('../../outside/z.npy')",
    ],
)
def test_pragmas_stay_in_kernel_directories(top: Path, pragma: str) -> None:
    """What holds for a kernel file holds for a CUDA file with pragmas in its place."""
    text = """
        #pragma tuner problem(N = [4])
        #pragma tuner inout x: float32[N]
        #pragma tuner {}
        #pragma tuner launch grid(1) block(1)
        __global__ void k(float* x{}) {{}}
        """.replace("    ", "")
    (top / "outside").mkdir()
    (top / "kernels.d/mine/kernel.toml").unlink()
    (top / "kernels.d/mine/kernel.cu").write_text(text.format("toml kernel.name = 'k'", ""))
    assert kernel_directories([top / "kernels.d"], below=top)
    more = ", const float* z" if "z:" in pragma else ""
    (top / "kernels.d/mine/kernel.cu").write_text(text.format(pragma, more))
    with pytest.raises(InputError, match=r"outside.*, out of the kernel directories"):
        kernel_directories([top / "kernels.d"], below=top)
    assert kernel_directories([top / "kernels.d", top / "outside"], below=top)


@pytest.mark.parametrize("option", ["-I/tmp", "--include-path=..", "-include=/tmp/x.h", "-{flag}"])
def test_options_that_read_files_are_refused(top: Path, option: str) -> None:
    """The compiler of the service reads what is in its directories, by include_paths only."""
    text = '[kernel]\nsource = "k.cu"\noptions = ["%s"]\n[problem]\nsizes.N = [4]\n'
    text += '[arguments]\nx = "inout float32[N]"\n[launch]\ngrid = 1\nblock = 1\n'
    (top / "kernels.d/mine/kernel.toml").write_text(text % "-DA={N}")
    assert kernel_directories([top / "kernels.d"], below=top)
    (top / "kernels.d/mine/kernel.toml").write_text(text % option)
    with pytest.raises(InputError, match="include_paths"):
        kernel_directories([top / "kernels.d"], below=top)


@needs_root
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{top}/tools/cc", "-c"], ""),
        (["no-such-command"], ""),
        (["{top}/others/cc"], "belongs to user"),
        (["sh", "{top}/others/cc"], "belongs to user"),
        (["sh", "-c", "cat<{top}/others/cc"], "belongs to user"),
        (["cat", "../../outside/scan.ptx"], "leads out of the kernel directory"),
        *[
            (["sh", f"{{{{{name}}}}}"], "a value is '.*/others/cc', a path")
            for name in ("FILE", "NAMED", "S", "E")
        ],
    ],
)
def test_build_commands_are_run_only_if_nobody_else_can_change_them(
    top: Path, words: list[str], says: str
) -> None:
    """The program, and files that its words name, belong to root or the service; reading runs nothing."""
    for folder in ("tools", "others"):
        (top / folder).mkdir(mode=0o755)
        (top / folder / "cc").write_text(f"#!/bin/sh\ntouch {top}/ran\n")
        (top / folder / "cc").chmod(0o755)
    os.chown(top / "others/cc", STRANGER, 0)
    build = [word.format(top=top) for word in words]
    cc = f"{top}/others/cc"
    chosen = {
        "{FILE}": f'[tunables]\nFILE = ["{cc}"]\n',
        "{NAMED}": f"[derived]\nNAMED = \"'{cc}' if N == 4 else ''\"\n",
        "{S}": f'sizes.S = ["{cc}"]\n',
        "{E}": f'[tunables.E]\nvalues = [1]\nwhen = "N < 4"\notherwise = "\'{cc}\'"\n',
    }.get(build[-1], "")
    (top / "kernels.d/mine/kernel.toml").write_text(
        f'[kernel]\nsource = "k.cu"\nentry = "k"\nbuild = {build}\n[problem]\nsizes.N = [4]\n'
        f'{chosen}[arguments]\nx = "inout float32[N]"\n[launch]\ngrid = 1\nblock = 1\n'
    )
    (top / "kernels.d/mine/k.cu").touch(mode=0o644)
    if says:
        with pytest.raises(InputError, match=f"kernel.toml: build: .*{says}"):
            kernel_directories([top / "kernels.d"], below=top)
    else:
        assert kernel_directories([top / "kernels.d"], below=top)
    assert not (top / "ran").exists()


@needs_root
def test_modules_of_a_python_file_lie_in_the_directory(top: Path) -> None:
    """A file of a package imports from above it, where others may have modules."""
    kernel = top / "kernels.d/mine/kernel.toml"
    kernel.write_text(
        '[kernel]\nsource = "k.py"\nentry = "k"\n[problem]\nsizes.N = [4]\n'
        '[arguments]\nx = "inout float32[N]"\n[launch]\ngrid = 1\n'
    )
    for name in ("k.py", "__init__.py"):
        assert kernel_directories([kernel.parent], below=top)
        (kernel.parent / name).touch(mode=0o644)
    assert kernel_directories([top / "kernels.d"], below=top)
    with pytest.raises(InputError, match=r"leads to .*/kernels.d, out of the kernel directories"):
        kernel_directories([kernel.parent], below=top)


@needs_root
def test_files_of_configurations_lie_in_the_directory(top: Path) -> None:
    """Each file that a name with expressions stands for is looked at, as one that is named whole."""
    kernel = top / "kernels.d/mine/kernel.toml"
    kernel.write_text(
        '[kernel]\nsource = "k_{B}.ptx"\nentry = "k"\n[problem]\nsizes.N = [4]\n[tunables]\nB = [1, 2]\n'
        '[arguments]\nx = "inout float32[N]"\n[launch]\ngrid = 1\nblock = "B"\n'
    )
    (kernel.parent / "k_1.ptx").touch(mode=0o644)
    assert kernel_directories([top / "kernels.d"], below=top)
    (top / "outside.ptx").touch(mode=0o644)
    (kernel.parent / "k_2.ptx").symlink_to(top / "outside.ptx")
    with pytest.raises(InputError, match=r"'k_2.ptx' leads to .*/outside.ptx, out of the kernel directories"):
        kernel_directories([top / "kernels.d"], below=top)


MODES = st.integers(0o000, 0o7777)


@given(mode=MODES, at=st.sampled_from(["kernels.d", "kernels.d/mine", "kernels.d/mine/kernel.toml"]))
def test_a_mode_is_taken_exactly_if_nobody_else_can_write(top: Path, mode: int, at: str) -> None:
    """Of an owner's file the rights of group and others to write decide, and nothing else."""
    before = (top / at).stat().st_mode & 0o7777
    (top / at).chmod(mode | 0o700)  # a directory that we cannot read ourselves is another matter
    try:
        if mode & 0o022:
            refused(top, "can be written by others")
        else:
            assert trusted(top / "kernels.d", below=top).is_dir()
    finally:
        (top / at).chmod(before)


def test_the_shipped_kernels_name_no_source_elsewhere(top: Path) -> None:
    """Every kernel of the catalogue is right by the rule for sources."""
    shutil.copytree(kernels_root(), top / "shipped")
    for path in (top / "shipped", *(top / "shipped").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    assert kernel_directories([top / "shipped"], below=top)


def test_headers_of_the_catalogue_may_be_taken(top: Path) -> None:
    """A kernel file may name a folder of the package, as that is the service's own."""
    text = (kernels_root() / "scan-lf" / "kernel.toml").read_text()
    path = top / "kernels.d/mine/kernel.toml"
    path.write_text(text.replace('"../common"', '"catalogue:common"'))
    assert kernel_directories([top / "kernels.d"], below=top)


def test_the_folder_of_an_added_file_is_looked_at(top: Path) -> None:
    """An added file is taken like a directory, and left out alone where others can write beside it."""
    for name, mode in (("good", 0o755), ("bad", 0o775)):
        (top / name).mkdir(mode=0o755)
        (top / name / f"{name}.toml").write_text("x")
        (top / name / f"{name}.toml").chmod(0o644)
        (top / name).chmod(mode)
    for name in ("good", "bad", "gone"):
        place = top / f"kernels.d/{name}.path"
        place.write_text(f"{top}/{name}/{name}.toml\n")
        place.chmod(0o644)
    (top / "kernels.d/odd.path").write_text("relative.toml")
    (top / "kernels.d/odd.path").chmod(0o644)
    (top / "gone").mkdir(mode=0o755)

    usable, left_out = usable_directories([top / "kernels.d"], below=top)

    here = top.resolve()
    assert usable == (here / "kernels.d", here / "good/good.toml")
    assert set(left_out) == {top / "bad/bad.toml", top / "gone/gone.toml"}
    assert "can be written by others" in left_out[top / "bad/bad.toml"]
    assert "is gone" in left_out[top / "gone/gone.toml"]
    assert kernel_directories(usable, below=top) == usable
