"""Hostile files: what each holds, the command that reads it, and what may come of it.

Every one is a folder with its files and a command line. ``benchmarks/hostile_files.py`` runs all of them
through the program, ``tests/test_hostile_files.py`` some.
"""

import gzip
import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec

ESCAPES = {
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "link": "\x1b]8;;http://example.invalid\x07text\x1b]8;;\x07",
    "colour": "\x1b[31mred",
    "screen": "\x1b[2J\x1b[H",
    "c1": "\x9b31mred",
    "overwritten": "honest\rforged",
    "bidi": "\u202eright to left\u2066",
    "deleted": "a\x08\x7fb",
    "title": "\x1b]0;title\x07",
    "bell": "\x07" * 5,
}
DEVICE = ("--device", "sim:h200")
CHECK: tuple[str, ...] = ("kernels", "check", "kernel.toml")
STORED = ("--database", "runs.db", "--budget", "2")
RUN: tuple[str, ...] = ("run", "hostile:N=4", "--kernel", "kernel.toml", *DEVICE, *STORED)
LIST: tuple[str, ...] = ("kernels", "list", "--kernel", "kernel.toml")
SHOW: tuple[str, ...] = ("kernels", "show", "hostile", "--kernel", "kernel.toml")
SOURCE = 'extern "C" __global__ void hostile(int* p) { p[threadIdx.x] = VALUE; }\n'
KERNEL = """\
[kernel]
name = "hostile"
description = "a kernel"
source = "hostile.cu"
entry = "hostile"
options = {options}
{more}
[problem]
name = "unchecked"
sizes.N = [4]
[arguments]
p = "out int32[N]"
[tunables]
VALUE = {values}
[launch]
grid = 1
block = 4
[resources]
registers = 16
"""

Make = Callable[[Path, Path], None]
Given = ParamSpec("Given")


def made(write: Callable[Concatenate[Path, Path, Given], None]) -> Callable[Given, Make]:
    """Of a function that writes into a folder, one that waits for folder and victim."""

    def make(*given: Given.args, **named: Given.kwargs) -> Make:
        return lambda folder, victim: write(folder, victim, *given, **named)

    return make


@dataclass(frozen=True)
class HostileFile:
    """One of them.

    Attributes:
        kind: what it tries.
        name: of this one.
        make: called with its folder, and the victim that must stay as it is.
        command: of ``tuner``, in the folder; ``{victim}`` is the victim.
        codes: exit codes that are right.
        harmless: the file is legal, if strange: only that nothing is harmed counts.
        compiles: NVRTC itself works on it; its time and memory are bounded by the compiler's own limits.
    """

    kind: str
    name: str
    make: Make
    command: tuple[str, ...]
    codes: tuple[int, ...] = (2,)
    harmless: bool = False
    compiles: bool = False


def hostile_files() -> Iterator[HostileFile]:
    """All of them, always in the same order."""
    yield from _options()
    yield from _includes()
    yield from _toml()
    yield from _json()
    yield from _archives()
    yield from _arrays()
    yield from _no_files()
    yield from _escapes()
    yield from _caches()
    yield from _sources()


def kernel(
    folder: Path,
    *,
    options: object = (),
    values: object = (1, 2),
    source: str = SOURCE,
    more: str = "",
) -> None:
    """Write a kernel file and its source."""
    text = KERNEL.format(options=_toml_value(options), values=_toml_value(values), more=more)
    (folder / "kernel.toml").write_text(text, encoding="utf-8")
    (folder / "hostile.cu").write_bytes(source.encode(errors="surrogatepass"))


def changed_kernel(folder: Path, old: str, new: str) -> None:
    """Write a kernel file with another text in it, and its source."""
    kernel(folder)
    path = folder / "kernel.toml"
    path.write_text(path.read_text().replace(old, new))


def _toml_value(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value).replace("\x7f", "\\u007f")


# --- options --------------------------------------------------------------------------------------

WRITING = [
    ("--create-pch={victim}",),
    ("-create-pch={victim}",),
    ("--create-pch", "{victim}"),
    ("--create-pch {victim}",),
    (" --create-pch={victim}",),
    ("--create_pch={victim}",),
    ("--pch", "--pch-dir={folder}"),
    ("--use-pch={victim}",),
    ("--time={victim}",),
    ("-time={victim}",),
    ("--time", "{victim}"),
    ("--fdevice-time-trace={victim}",),
    ("-fdevice-time-trace={victim}",),
    ("--options-file={victim}",),
    ("-optf", "{victim}"),
    ("--optf={victim}",),
    ("@{victim}",),
    ("--pre-include={victim}",),
    ("-include={victim}",),
    ("-include", "{victim}"),
    ("--include={victim}",),
    ("-I/etc",),
    ("-I", "/etc"),
    ("--include-path=/etc",),
    ("--include-path", "/root"),
    ("-I..",),
    ("-Xcudafe=--create_pch={victim}",),
    ("-Xcudafe", "--create_pch={victim}"),
    ("-Xnvvm=-time-trace",),
    ("--nvvm-options=-time-trace-file={victim}",),
    ("--ptxas-options=--compiler-stats-file={victim}", "--ptxas-options=--compiler-stats=time"),
    ("-Xptxas=--compiler-stats-file={victim}", "-Xptxas=--compiler-stats=t"),
    ("-Xptxas", "--compiler-stats-file={victim}"),
    ("--ptxas-options=-o={victim}",),
    ("--ptxas-options=--output-file={victim}",),
    ("-Xptxas=-v,-o={victim}",),
    ("-Xptxas=-v -o={victim}",),
    ("--ptxas-options=--options-file={victim}",),
    ("--ptxas-options=--export-table={victim}",),
    ("--dump={victim}",),
    ("--keep-dir={folder}",),
    ("-DX=1\n#include </etc/passwd>",),
    ("-D", "X=1\r#include </etc/passwd>"),
    ("--frobnicate={victim}",),
    ("-o", "{victim}"),
    ("-MD", "-MF{victim}"),
]


def _options() -> Iterator[HostileFile]:
    for number, options in enumerate(WRITING):
        yield HostileFile("option", f"{number} {options[0][:24]!r}", _with_options(options), CHECK)
    for name in ("create-pch", "time", "fdevice-time-trace"):
        values = (f"{name}={{victim}}", f"{name}={{victim}}2")
        yield HostileFile("option made by a tunable", name, _with_options(("--{VALUE}",), values), RUN)
        yield HostileFile("option made by a tunable", f"whole {name}", _whole_option(name), RUN)
    yield HostileFile("option of a T1 file", "create-pch", _t1, ("import", "t1.json"))
    for entry in ('hostile\n#include "/etc/passwd"', "hostile\r#include </etc/passwd>", "hostile\x00"):
        yield HostileFile("entry of several lines", repr(entry)[:30], _with_entry(entry), RUN, codes=(1, 2))


@made
def _with_options(
    folder: Path, victim: Path, options: tuple[str, ...], values: tuple[object, ...] = (1, 2)
) -> None:
    def filled(text: object) -> object:
        if not isinstance(text, str):
            return text
        return text.replace("{victim}", str(victim)).replace("{folder}", str(victim.parent))

    kernel(folder, options=tuple(map(filled, options)), values=tuple(map(filled, values)))


@made
def _whole_option(folder: Path, victim: Path, name: str) -> None:
    kernel(folder, options=("{VALUE}",), values=(f"--{name}={victim}", f"--{name}={victim}2"))


@made
def _with_entry(folder: Path, _: Path, entry: str) -> None:
    changed_kernel(folder, 'entry = "hostile"', f"entry = {json.dumps(entry)}")


def _t1(folder: Path, victim: Path) -> None:
    data = Path(__file__).parent / "data/exchange"
    document = json.loads((data / "axpy.json").read_text())
    document["KernelSpecification"]["CompilerOptions"] = [f"--create-pch={victim}"]
    (folder / "t1.json").write_text(json.dumps(document))
    (folder / "axpy.cu").write_text((data / "axpy.cu").read_text())


# --- includes -------------------------------------------------------------------------------------

INCLUDES = [
    '#include "{path}"',
    "#include <{path}>",
    '/* */ # include "{path}"',
    '%:include "{path}"',
    '#inc\\\nlude "{path}"',
    '#inc??/\nlude "{path}"',
    '??=include "{path}"',
    '#/**/include/**/"{path}"',
    '#define HEADER "{path}"\n#include HEADER',
    "#define TEXT(x) #x\n#include TEXT({path})",
    '#if __has_include("{path}")\n#error it is there\n#endif',
    'const char* s = R"(\n/*)";\n#include "{path}"\n/* */',
    '#include_next "{path}"',
]


def _includes() -> Iterator[HostileFile]:
    for number, spelling in enumerate(INCLUDES):
        for path in ("/etc/passwd", "../../../../../../../../etc/passwd")[: 1 + number % 2]:
            text = spelling.replace("{path}", path) + "\n" + SOURCE
            name = f"{number} {path[:6]}"
            yield HostileFile("include", name, _with_source(text), CHECK)
    for path in ("/dev/zero", "/dev/stdin", "/proc/self/environ", "pipe.cuh"):
        text = f'#include "{path}"\n' + SOURCE
        yield HostileFile("include of no file", path, _with_pipe(text), CHECK)
    for folder_ in ("/", "/etc", "/proc", "/dev", "/home", "../../../../../../.."):
        more = f'include_paths = ["{folder_}"]'
        text = '#include "etc/passwd"\n#include "passwd"\n' + SOURCE
        yield HostileFile("include path", folder_, _with_source(text, more), CHECK)
    yield HostileFile("include", "link out of an include path", _linked_header, CHECK)


@made
def _with_source(folder: Path, victim: Path, text: str, more: str = "") -> None:
    kernel(folder, source=text.replace("{victim}", str(victim)), more=more)


@made
def _with_pipe(folder: Path, _: Path, text: str) -> None:
    kernel(folder, source=text)
    os.mkfifo(folder / "pipe.cuh")


def _linked_header(folder: Path, victim: Path) -> None:
    (folder / "inc").mkdir()
    (folder / "inc/a.h").symlink_to(victim)
    kernel(folder, source='#include "a.h"\n' + SOURCE, more='include_paths = ["inc"]')


# --- TOML -----------------------------------------------------------------------------------------

BAD_TOML = {
    "dotted key": "a" + ".a" * 200_000 + " = 1\n",
    "quoted dotted key": '"a"' + '."a"' * 100_000 + " = 1\n",
    "dotted table": "[a" + ".a" * 200_000 + "]\n",
    "deep list": "a = " + "[" * 100_000,
    "deep table": "a = " + "{a=" * 50_000,
    "closed deep list": "a = " + "[" * 5000 + "]" * 5000 + "\n",
    "long key": "a" * 400_000 + " = 1\n",
    "long quoted key": '"' + "a" * 400_000 + '" = 1\n',
    "many keys": "".join(f"a{i} = 1\n" for i in range(60_000)),
    "keys below the limit": "".join(f"a{i} = 1\n" for i in range(19_000)),
    "many tables": "".join(f"[a{i}]\n" for i in range(60_000)),
    "large": "#" * 2**21,
    "long number": "a = " + "1" * 500_000 + "\n",
    "long text": 'kernel = "' + "x" * 900_000 + '"\n',
    "open text": 'a = """' + '"' * 500_000,
    "no UTF-8": "\udcff\udcfe",
    "a NUL": "a = 1\0\n",
}


def _toml() -> Iterator[HostileFile]:
    for name, text in BAD_TOML.items():
        yield HostileFile("kernel.toml", name, _text_file("kernel.toml", text), CHECK)
    for name in ("dotted key", "deep list", "long key", "many keys", "large", "closed deep list"):
        make = _text_file("daemon.toml", BAD_TOML[name])
        yield HostileFile("daemon.toml", name, make, ("daemon", "--config", "daemon.toml", "--check"))
    deep = {"nested": "(" * 400 + "1" + ")" * 400, "long": "1 + " * 5000 + "1", "power": "9 ** 9 ** 9 ** 9"}
    for name, text in deep.items():
        more = f"[derived]\nX = {json.dumps(text)}\n"
        yield HostileFile("expression", name, _with_end(more), RUN)


@made
def _text_file(folder: Path, _: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))


@made
def _with_end(folder: Path, _: Path, text: str) -> None:
    kernel(folder)
    with (folder / "kernel.toml").open("a") as file:
        file.write(text)


# --- JSON -----------------------------------------------------------------------------------------

REPLAY = ("run", "--device", "replay:{file}", "--database", "runs.db", "--budget", "2")


def _replay(file: str) -> tuple[str, ...]:
    return tuple(word.replace("{file}", file) for word in REPLAY)


BAD_JSON = {
    "deep lists": "[" * 200_000,
    "deep objects": '{"a":' * 200_000,
    "closed deep lists": "[" * 50_000 + "]" * 50_000,
    "empty lists": "[" + "[]," * 1_000_000 + "[]]",
    "objects": "[" + '{"a":1},' * 1_000_000 + "{}]",
    "numbers": "[" + "0," * 5_000_000 + "0]",
    "long number": "1" * 1_000_000,
    "not-a-number": '{"cache": NaN}',
    "surrogates": '{"cache": {"\\ud800": 1}}',
    "large": " " * (65 * 2**20),
    "no UTF-8": "\udcff" * 100,
    "long name": '{"cache": {"' + "a" * 1_000_000 + '": 1}}',
}


def _json() -> Iterator[HostileFile]:
    for name, text in BAD_JSON.items():
        make = _text_file("found.json", text)
        yield HostileFile("JSON replayed", name, make, _replay("found.json"))
        if name not in {"long number", "not-a-number", "surrogates"}:
            yield HostileFile("JSON imported", name, make, ("import", "found.json"))
        if name in {"deep lists", "objects", "large", "no UTF-8", "empty lists"}:
            yield HostileFile("JSON shown", name, make, ("show", "found.json"))
            yield HostileFile("JSON exported", name, make, ("export", "found.json", "--format", "json"))


# --- archives -------------------------------------------------------------------------------------


def _archives() -> Iterator[HostileFile]:
    for name, make in {
        "one member": _bomb(" ", 2**28),
        "zeros of a list": _bomb("0,", 2**27),
        "many large members": _bomb(" ", 2**24, members=200),
        "many small members": _bomb("", 0, members=60_000),
        "lying size": _lying_zip,
        "cut off": _cut_zip,
        "many lists": _bomb("[[]],", 2**25, members=8),
    }.items():
        yield HostileFile("zip", name, make, _replay("found.zip"))
    for name, length in {"gzip": 2**30, "gzip of a list": 2**28}.items():
        piece = b" " if name == "gzip" else b"[],"
        make = _gzip(piece, length)
        yield HostileFile("gzip", name, make, _replay("found.json.gz"))
        yield HostileFile("gzip", f"{name} imported", make, ("import", "found.json.gz"))


@made
def _bomb(folder: Path, _: Path, piece: str, length: int, members: int = 1) -> None:
    data = (piece * (length // max(1, len(piece)))).encode()
    with zipfile.ZipFile(folder / "found.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(members):
            archive.writestr(f"scan-lf:N={number}.json", data)


def _lying_zip(folder: Path, victim: Path) -> None:
    """Its directory says 10 bytes of a member that has 256 MiB."""
    _bomb(" ", 2**28)(folder, victim)
    path = folder / "found.zip"
    path.write_bytes(path.read_bytes().replace(struct.pack("<I", 2**28), struct.pack("<I", 10)))


def _cut_zip(folder: Path, victim: Path) -> None:
    _bomb("{}", 200_000)(folder, victim)
    path = folder / "found.zip"
    path.write_bytes(path.read_bytes()[:-10])


@made
def _gzip(folder: Path, _: Path, piece: bytes, length: int) -> None:
    with gzip.open(folder / "found.json.gz", "wb", compresslevel=1) as file:
        for _mebibyte in range(length // 2**20):
            file.write(piece * (2**20 // len(piece)))


# --- NumPy ----------------------------------------------------------------------------------------


def _header(shape: object, descr: object = "'<f4'", version: int = 1) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    size = struct.pack("<H", len(text)) if version == 1 else struct.pack("<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


BAD_ARRAYS = {
    "huge shape": _header((2**40,)),
    "huge product": _header((2**32, 2**32)),
    "negative": _header((-4,)),
    "negative product": _header((-2, -2)),
    "objects": _header((4,), "'|O'") + b"\x80\x04K\x01.",
    "without bytes": _header((2**40,), "'|V0'"),
    "deep header": _header("(" * 5000 + ")" * 5000),
    "long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b" " * 2**20,
    "call in the header": _header("__import__('os').system('touch {victim}2')"),
    "nothing": b"",
    "truncated": _header((4,)) + b"\0" * 4,
    "structure": _header((4,), "[('a', '<f4'), ('b', '|O')]"),
}


def _arrays() -> Iterator[HostileFile]:
    for number, (name, data) in enumerate(BAD_ARRAYS.items()):
        yield HostileFile("npy", name, _data("x.npy", data), RUN)
        if number % 2:
            yield HostileFile("npz of a kernel", name, _npz(data), RUN)
        else:
            yield HostileFile("npz replayed", name, _npz(data), _replay("x.npz"))
    bomb = _npz(_header((2**26,)), zeros=2**28)
    yield HostileFile("npz of a kernel", "bomb", bomb, RUN)
    yield HostileFile("npz replayed", "bomb", bomb, _replay("x.npz"))
    yield HostileFile("npy", "sparse header", _sparse, RUN)


def _reading(folder: Path, input_: str) -> None:
    changed_kernel(folder, '"out int32[N]"', f"'inout float32[N] = {input_}'")


@made
def _data(folder: Path, victim: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data.replace(b"{victim}", os.fsencode(victim)))
    _reading(folder, f'file("{name}")')


@made
def _npz(folder: Path, victim: Path, data: bytes, zeros: int = 0) -> None:
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("meta", "idx", "time_ms", "status", "x"):
            content = data.replace(b"{victim}", os.fsencode(victim)) + b"\0" * zeros
            archive.writestr(f"{name}.npy", content)
    _reading(folder, 'file("x.npz", "x")')


def _sparse(folder: Path, victim: Path) -> None:
    """A header that claims 4 GiB, in a file that has them without taking room."""
    del victim
    path = folder / "x.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 100))
    os.truncate(path, 2**32)
    _reading(folder, 'file("x.npy")')


# --- what is no file ------------------------------------------------------------------------------


def _no_files() -> Iterator[HostileFile]:
    for what in ("/dev/zero", "/dev/tty", "pipe", "/proc/self/mem", "loop", ".."):
        name = what.strip("/")
        yield HostileFile("source is no file", name, _no_source(what), CHECK)
        yield HostileFile("data is no file", name, _no_data(what), RUN)
    for what in ("/dev/zero", "pipe", "loop"):
        name = what.strip("/")
        yield HostileFile("recording is no file", name, _special(what), _replay(what))
        yield HostileFile("import of no file", name, _special(what), ("import", what))
        yield HostileFile("kernel file is no file", name, _special(what), ("kernels", "check", what))


@made
def _special(folder: Path, _: Path, what: str) -> None:
    if what == "pipe":
        os.mkfifo(folder / "pipe")
    if what == "loop":
        (folder / "loop").symlink_to("loop")


@made
def _no_source(folder: Path, victim: Path, what: str) -> None:
    _special(what)(folder, victim)
    changed_kernel(folder, 'source = "hostile.cu"', f'source = "{what}"')


@made
def _no_data(folder: Path, victim: Path, what: str) -> None:
    _special(what)(folder, victim)
    name = what if what.startswith("/") else f"{what}.npy"
    if what in {"pipe", "loop"}:
        (folder / what).rename(folder / name)
    _reading(folder, f'file("{name}")')


# --- control characters ---------------------------------------------------------------------------


def cache(text: str) -> dict[str, object]:
    """A cache of Kernel Tuner with a text in its names."""
    return {
        "device_name": f"GPU {text}",
        "kernel_name": f"k{text}",
        "problem_size": 4,
        "tune_params_keys": ["x"],
        "tune_params": {"x": [1, 2]},
        "objective": text,
        "cache": {"1": {"x": 1, "time": 1.0, "times": [1.0]}, "2": {"x": 2, "time": 2.0, "times": [2.0]}},
    }


def _escapes() -> Iterator[HostileFile]:
    for number, (name, text) in enumerate(ESCAPES.items()):
        command: tuple[str, ...] = LIST if number % 2 else SHOW
        yield HostileFile("described", name, _described(text), command, (0,), harmless=True)
        error = _with_source(f'#error "{text}"\n' + SOURCE)
        command = CHECK if number == 0 else RUN
        yield HostileFile("#error", name, error, command, (0, 1, 2), compiles=True)
        foreign = _text_file("found.json", json.dumps(cache(text)))
        use: tuple[str, ...] = ("import", "found.json") if number % 2 else _replay("found.json")
        yield HostileFile("foreign cache", name, foreign, use, (0, 2), harmless=True)
        words: tuple[str, ...] = ("run", text, *DEVICE) if number % 2 else (f"--{text}",)
        yield HostileFile("word", name, _nothing, words)
        yield HostileFile("key", name, _text_file("kernel.toml", f"{_quoted(text)} = 1\n"), CHECK)


def _quoted(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _nothing(folder: Path, victim: Path) -> None:
    del folder, victim


@made
def _described(folder: Path, _: Path, text: str) -> None:
    changed_kernel(folder, '"a kernel"', _quoted(text))


# --- caches of compiled code ----------------------------------------------------------------------

CUBINS = "cache/tuner/cubins"


def _caches() -> Iterator[HostileFile]:
    contents = {
        "no digest": b"",
        "text": b"\x7fELF",
        "a null": _entry(b"null"),
        "a list": _entry(b"[]"),
        "numbers": _entry(b"[1, 2, true]"),
        "deep": _entry(b"[" * 100_000),
        "sound, of others": _entry(json.dumps(["hostile", "", True]).encode(), b"\x7fELF planted"),
    }
    for name, data in contents.items():
        yield HostileFile("poisoned cache", name, _poisoned(data), RUN, (0,), True, compiles=True)
    yield HostileFile("poisoned cache", "pipes", _poisoned(None), RUN, (0,), True, compiles=True)


def _entry(facts: bytes, cubin: bytes = b"") -> bytes:
    data = len(facts).to_bytes(8, "big") + facts + cubin

    return hashlib.sha256(data).digest() + data


@made
def _poisoned(folder: Path, _: Path, data: bytes | None) -> None:
    """Every file of the user's cache is replaced once it is there: see ``benchmarks/hostile_files.py``."""
    kernel(folder)
    (folder / "poison").write_bytes(data if data is not None else b"a pipe")


# --- sources that keep a compiler busy ------------------------------------------------------------


def _sources() -> Iterator[HostileFile]:
    doubling = "".join(f"#define A{i + 1} A{i} + A{i} + A{i} + A{i}\n" for i in range(12))
    nested = "template <int N> struct T { static constexpr int v = T<N + 1>::v + T<N + 2>::v; };\n"
    slow = "constexpr int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\n"
    sources = {
        "recursive templates": nested + SOURCE.replace("VALUE", "T<0>::v"),
        "macros": "#define A0 1\n" + doubling + SOURCE.replace("VALUE", "A12"),
        "constexpr": slow + "static_assert(f(60) > 0);\n" + SOURCE,
        "includes itself": '#include "hostile.cuh"\n' + SOURCE,
        "megabytes": SOURCE + "//" * 2**20,
        "brackets": SOURCE.replace("VALUE", "(" * 200_000 + "1" + ")" * 200_000),
        "a NUL": SOURCE + "\0\n",
        "surrogates": SOURCE + "// \udcff\n",
    }
    for name, text in sources.items():
        codes = (0, 1, 2) if name in {"a NUL", "macros"} else (1, 2)
        yield HostileFile("source", name, _self_including(text), RUN, codes, compiles=True)
    spaces = "[tunables]\n" + "".join(f"t{i} = [1, 2, 3, 4, 5, 6, 7, 8]\n" for i in range(12))
    yield HostileFile("space", "8 ** 12 configurations", _space(spaces), RUN)


@made
def _self_including(folder: Path, _: Path, text: str) -> None:
    kernel(folder, source=text)
    (folder / "hostile.cuh").write_text('#include "hostile.cuh"\n')


@made
def _space(folder: Path, _: Path, text: str) -> None:
    changed_kernel(folder, "[tunables]\n", text)
