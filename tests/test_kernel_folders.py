"""Folders of kernel files: the shipped one is read kernel by kernel, as far as it is asked for."""

from pathlib import Path

import pytest
from test_catalog import add
from test_power_ownership import nobody

from tuner.kernel_files import catalog
from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import KernelFileError


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of the shipped kernels: a good one, a broken one, one not called as its folder."""
    folder = tmp_path / "shipped"
    add(folder / "good" / "kernel.toml", "good")
    add(folder / "other" / "kernel.toml", "another")
    add(folder / "broken" / "kernel.toml", "broken").write_text("[kernel\n")
    monkeypatch.setattr("tuner.kernel_files.catalog.kernels_root", lambda: folder)
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernel files that were read, by the names of their folders."""
    found = list[str]()

    def load(path: Path) -> KernelFile:
        found.append(path.parent.name)
        return load_kernel_file(path)

    monkeypatch.setattr(catalog, "load_kernel_file", load)
    return found


def test_a_shipped_kernel_is_read_alone_and_once(shipped: Path, read: list[str]) -> None:
    """To ask for a shipped kernel reads its file and no other; one that is overridden is not read."""
    user = add(shipped.parent / "user" / "other" / "kernel.toml", "other").parent.parent
    catalog = Catalog.load(search_path=[shipped, user])
    assert read == ["other"]
    assert catalog.kernel("good") is catalog.kernel("good")
    assert catalog.kernel("other").path.is_relative_to(user)
    assert read == ["other", "good"]


def test_the_names_are_those_of_the_files_that_can_be_read(shipped: Path, read: list[str]) -> None:
    """Names and broken files are those of all files; a shipped kernel must have the name of its folder."""
    catalog = Catalog.load(search_path=[shipped])
    assert catalog.names == ("good",)
    assert len(catalog.kernels) == 1
    assert sorted(read) == ["broken", "good", "other"]
    broken, other = catalog.broken
    assert type(broken) is type(other) is KernelFileError
    assert str(broken).startswith(f"{shipped / 'broken' / 'kernel.toml'}: not valid TOML")
    assert str(other) == (
        f"{shipped / 'other' / 'kernel.toml'}: [kernel] name: must be 'other', as the file is called"
    )
    assert len(read) == 3


def test_a_broken_kernel_hides_none_of_a_weaker_place(shipped: Path) -> None:
    """Where the file of the strongest place is broken, the kernel of the next one is taken."""
    weaker = add(shipped.parent / "weaker" / "broken.toml", "broken").parent
    assert Catalog.load(search_path=[weaker, shipped]).kernel("broken").path.parent == weaker


def test_a_folder_that_this_user_may_not_read_is_named(tmp_path: Path) -> None:
    """Where HOME is another user's, as in a container with --user, the shipped kernels are there still."""
    (tmp_path / "home").mkdir(mode=0o700)
    folder = tmp_path / "home" / "kernels.d"
    with nobody():
        found = catalog.ReadFolder.read(folder)
    assert (found.kernels, list(map(str, found.broken))) == (
        {},
        [f"{folder}: cannot be read: Permission denied"],
    )
