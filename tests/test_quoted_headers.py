"""Headers that a source includes by quotes, from its own folder."""

from pathlib import Path

import numpy as np
import pytest

import tuner
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.source_folder import SourceFolder
from tuner.model.plan import Source

CODE = '#include "inc/util.h"\n__global__ void f(float* x) { x[0] = SUB + OWN; }\n'
FILES = {
    "k.cu": CODE,
    "own.h": "#define OWN 1\n",
    "inc/util.h": '#include "../own.h"\n#include "sub.hpp"\n',
    "inc/sub.hpp": "#define SUB 2\n",
    "unused.h": "#error\n",
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def read(folder: Path, *include_paths: str) -> Source:
    location = Location("k.toml", "[kernel] source")
    sources = SourceFolder(folder, [], location)
    sources.include(include_paths, location)
    return sources.source("k.cu", location)


def test_they_are_found_from_header_to_header(tmp_path: Path) -> None:
    """Each has its path as its name, and every other name leads to that; what nobody includes is left out."""
    assert dict(read(written(tmp_path, FILES)).headers) == {
        "inc/util.h": FILES["inc/util.h"],
        "inc/sub.hpp": FILES["inc/sub.hpp"],
        "own.h": FILES["own.h"],
        "../own.h": '#include "own.h"\n',
        "sub.hpp": '#include "inc/sub.hpp"\n',
    }


def test_one_that_changes_changes_the_source(tmp_path: Path) -> None:
    """However deep it is included."""
    before = read(written(tmp_path, FILES)).sha256
    (tmp_path / "inc" / "sub.hpp").write_text("#define SUB 3\n")
    assert read(tmp_path).sha256 != before


def test_include_paths_that_have_them_keep_them(tmp_path: Path) -> None:
    """They are files for the compiler then, and hashed with their folder, as before."""
    assert read(written(tmp_path, FILES), ".").headers == ()


@pytest.mark.parametrize(
    "files",
    [
        {"inc/util.h": '#include "own.h"\n', "inc/own.h": "", "k.cu": f'#include "own.h"\n{CODE}'},
        {"own.h": "//" + "x" * 2**20},
        {"inc/sub.hpp": '#include "../../gone.h"\n'},
        {"inc/sub.hpp": "".join(f'#include "{i}.h"\n' for i in range(1001))}
        | {f"inc/{i}.h": "" for i in range(1001)},
    ],
)
def test_what_cannot_be_taken_is_left_out(tmp_path: Path, files: dict[str, str]) -> None:
    """One name for two files, headers that are too large or too many, and paths out of the folder.

    They may be for the host; the compiler says what it does not find.
    """
    assert read(written(tmp_path, FILES | files)).headers == ()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """A source may include what lies in its folder, and nothing else."""
    folder = written(tmp_path / "kernel", FILES)
    (folder / "own.h").unlink()
    (tmp_path / "secret.h").write_text("secret")
    (folder / "own.h").symlink_to(tmp_path / "secret.h")
    assert all("secret" not in text for _, text in read(folder).headers)


def test_python_finds_them_too(tmp_path: Path) -> None:
    """Beside the path of a source."""
    path = written(tmp_path, FILES) / "k.cu"
    kernel = tuner.Kernel(path, arguments={"x": np.zeros(4, np.float32)}, grid=1, block=64)
    assert dict(kernel.source.headers)["own.h"] == FILES["own.h"]
