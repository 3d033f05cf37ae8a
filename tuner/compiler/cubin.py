"""Cubins: their architecture, what each entry takes of a multiprocessor and of a launch, and their cache.

They are ELF files. The attributes of an entry are records in sections that begin with ``.nv.info``: a byte
for the form, one for the attribute, and two that are its value or the bytes of it that follow. Their names
are those that cuobjdump and nvdisasm print; all of it is tested against the reports of ptxas.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from ctypes import CDLL, POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, string_at
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tuner.compiler.nvrtc import Output
from tuner.compiler.ptx import LaunchFacts
from tuner.model.errors import InputError
from tuner.model.plan import LaunchDemands, Resources, Scratch
from tuner.model.typed import sealed, unsealed
from tuner.system.processes import forget_in_forks
from tuner.system.untrusted.reading import CUBIN_BYTES
from tuner.system.user_folders import make_folder, user_folder

_MAGIC = b"\x7fELF\x02\x01\x01"
_MACHINE = 190  # EM_CUDA
_ABI_AT, _MACHINE_AT, _TABLES_AT, _FLAGS_AT, _PARTS_AT, _COUNT_AT = 8, 18, 32, 48, 56, 60
_PART_BYTES = 56  # of a program header
_SECTION = struct.Struct("<II16xQQI20x")  # name, kind, offset, bytes, link
_NO_BITS = 8  # SHT_NOBITS, the kind of sections of which nothing is in the file
_SYMBOL = struct.Struct("<IBBHQQ")  # name, kind, other, section, value, bytes
_ENTRY, _VARIABLE = 0x10, 1  # STO_CUDA_ENTRY, STT_OBJECT
_UNDEFINED = 0
_RECORD = struct.Struct("<BBH")
_SIZED = 4  # form of an attribute whose value follows
_REGISTERS, _FRAME = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE, of the whole file
_PARAMETER, _MOST_THREADS, _BLOCK = 0x17, 0x05, 0x10  # EIATTR_KPARAM_INFO, _MAX_THREADS, _REQNTID
_CLUSTER = 0x3D  # EIATTR_CTA_PER_CLUSTER
_RESERVED = ".nv.reservedSmem"  # begins symbols of what the system takes of each block
_RESERVED_BYTES = 1024
_Section = tuple[int, ...]
_EXACT, _EXACT_NEW = 0x800, 0x8  # EF_CUDA_ACCELERATORS
_NEW_FLAGS = 8  # the ABI from which on flags have the architecture in their second byte


class CubinEntry(NamedTuple):
    """One ``__global__`` function of a cubin; ``launch`` does not tell integers from other parameters."""

    registers: int
    local_bytes: int
    shared_bytes: int
    launch: LaunchFacts

    def resources(self, architecture: str) -> Resources:
        """Its resources; how much of the local memory is spilled registers, a cubin does not tell."""
        return Resources(self.registers, self.shared_bytes, 0, self.local_bytes, architecture)


class Cubin(NamedTuple):
    """A cubin that was read.

    Attributes:
        number: of its architecture, e.g. 90.
        entries: by mangled name.
        variables: sizes of ``__device__`` and ``__constant__`` variables in bytes, by mangled name.
        exact: it has what only this architecture has, as of ``sm_90a``.
    """

    number: int
    entries: dict[str, CubinEntry]
    variables: dict[str, int]
    exact: bool = False

    def serves(self, architecture: str) -> bool:
        """Return True if GPUs of an architecture run the code: those of its generation, not older than it."""
        number = int(architecture.removeprefix("sm_").rstrip("af"))
        if self.exact:
            return self.number == number
        return self.number <= number and self.number // 10 == number // 10


def read_cubin(data: bytes) -> Cubin:
    """Read a cubin.

    Raises:
        InputError: it is none, or damaged.
    """
    if not data.startswith(_MAGIC):
        raise InputError("is no cubin, which is an ELF file; nvcc -cubin makes one")
    try:
        if struct.unpack_from("<H", data, _MACHINE_AT)[0] != _MACHINE:
            raise InputError("is an ELF file and no cubin; nvcc -cubin makes one")
        return _read(data)
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise InputError("is a cubin that is damaged or cut off") from error


def _read(data: bytes) -> Cubin:
    (flags,) = struct.unpack_from("<I", data, _FLAGS_AT)
    parts_at, begin = struct.unpack_from("<QQ", data, _TABLES_AT)
    (parts,) = struct.unpack_from("<H", data, _PARTS_AT)
    count, names = struct.unpack_from("<HH", data, _COUNT_AT)
    sections = [_SECTION.unpack_from(data, begin + _SECTION.size * index) for index in range(count)]
    ends = [offset + size for _, kind, offset, size, _ in sections if kind != _NO_BITS]
    if max(*ends, parts_at + parts * _PART_BYTES) > len(data):
        raise ValueError
    by_name = {_text(data, sections[names], section[0]): section for section in sections}
    if ".symtab" not in by_name:
        raise ValueError
    table = by_name[".symtab"]
    symbols = []
    for at in range(table[2], table[2] + table[3], _SYMBOL.size):
        name, kind, other, section, _, size = _SYMBOL.unpack_from(data, at)
        symbols.append((_text(data, sections[table[4]], name), kind & 0xF, other, section, size))
    reserved = any(name.startswith(_RESERVED) for name, *_ in symbols)
    registers: dict[int, int] = {}
    frames: dict[int, int] = {}
    for attribute, value in _attributes(data, by_name.get(".nv.info")):
        if attribute in (_REGISTERS, _FRAME):
            symbol, number = struct.unpack("<II", value)
            (registers if attribute == _REGISTERS else frames)[symbol] = number
    entries, variables = {}, {}
    for index, (name, kind, other, section, size) in enumerate(symbols):
        if other & _ENTRY and f".text.{name}" in by_name:
            shared = by_name[f".nv.shared.{name}"][3] if f".nv.shared.{name}" in by_name else 0
            entries[name] = CubinEntry(
                registers[index],
                frames.get(index, 0),
                max(0, shared - _RESERVED_BYTES) if reserved else shared,
                _launch(data, by_name.get(f".nv.info.{name}")),
            )
        elif kind == _VARIABLE and section != _UNDEFINED:
            variables[name] = size
    new = data[_ABI_AT] >= _NEW_FLAGS
    exact = bool(flags & (_EXACT_NEW if new else _EXACT))
    return Cubin((flags >> 8 if new else flags) & 0xFF, entries, variables, exact)


def _launch(data: bytes, section: _Section | None) -> LaunchFacts:
    parameters: dict[int, int] = {}
    shapes: dict[int, tuple[int, ...]] = {}
    for attribute, value in _attributes(data, section):
        if attribute == _PARAMETER:
            _, ordinal, _, packed = struct.unpack("<IHHI", value)
            parameters[ordinal] = packed >> 18
        elif attribute in (_MOST_THREADS, _BLOCK, _CLUSTER):
            shapes[attribute] = struct.unpack("<III", value)
    most = shapes.get(_MOST_THREADS)
    return LaunchFacts(
        tuple(("b", size) for _, size in sorted(parameters.items())),
        None if most is None else math.prod(most),
        shapes.get(_BLOCK),
        shapes.get(_CLUSTER),
    )


def _attributes(data: bytes, section: _Section | None) -> Iterator[tuple[int, bytes]]:
    """The attributes of a section that have a value of several bytes."""
    at, end = (0, 0) if section is None else (section[2], section[2] + section[3])
    while at < end:
        form, attribute, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if form == _SIZED:
            yield attribute, data[at : at + size]
            at += size


def _text(data: bytes, section: _Section, offset: int) -> str:
    begin = section[2] + offset
    return data[begin : data.index(b"\0", begin)].decode()


# --- Names.

_MANGLED = "_Z"


def demangled(name: str) -> str | None:
    """A mangled name as C++ writes it, by the C++ library of this machine.

    Returns:
        None where the name is not mangled, or the library is not here.
    """
    demangle = _demangler() if name.startswith(_MANGLED) else None
    return None if demangle is None else demangle(name)


@cache
def _demangler() -> Callable[[str], str | None] | None:
    try:
        demangle, release = getattr(CDLL("libstdc++.so.6"), "__cxa_demangle"), CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype, release.argtypes = c_void_p, [c_void_p]
    demangle.argtypes = [c_char_p, c_char_p, POINTER(c_size_t), POINTER(c_int)]

    def call(name: str) -> str | None:
        pointer = demangle(os.fsencode(name), None, None, byref(c_int()))
        if not pointer:
            return None
        try:
            return string_at(pointer).decode()
        finally:
            release(pointer)

    return call


# --- The disk cache of compiled code, by content: written atomically, and checked when read.
#
# What is in it runs on the GPU. The digest in a file tells damage, and covers the key, so that no answer
# stands in for another. That nobody else wrote it is told by owners and rights: directory and file are this
# user's or root's, and writable by nobody else.

_log = logging.getLogger(__name__)

_LIBRARIES = "libraries.json"
_LIBRARIES_BYTES = 2**20
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_HEAD = 40  # digest and size of what describes the code


def default_directory() -> Path:
    """The directory of the user's cached cubins."""
    return user_folder("cache") / "cubins"


class CubinCache:
    """Compilers' answers by key, one file each; in memory from the moment the directory takes no files.

    May be used by several threads.

    Args:
        directory: where the files are; made when the first is written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._memory: dict[str, Output] = {}
        self._writable = True
        self._warned = False
        self.forget()
        forget_in_forks(self)

    def forget(self) -> None:
        """Have a lock that nobody holds: at first, and in a forked process."""
        self._lock = threading.Lock()

    def load(self, key: str) -> Output | None:
        """The answer for a key; None where there is none, or its file is damaged or of somebody else."""
        if key in self._memory:
            return self._memory[key]
        data = self._read(key, CUBIN_BYTES)
        if data is None:
            return None
        answer = _answer(key, data)
        if answer is None:
            _log.info("cubin cache: %s is damaged; compiling again", self._directory / key)
        return answer

    def store(self, key: str, output: Output) -> None:
        """Keep an answer for its key."""
        demands = None if output.demands is None else astuple(output.demands)
        facts = [
            output.lowered_name,
            output.log,
            output.ptx,
            output.cubin is not None,
            output.symbols,
            demands,
        ]
        text = json.dumps(facts).encode()
        data = len(text).to_bytes(8, "big") + text + (output.cubin or b"")
        if not self._write(key, _digest(key, data) + data):
            self._memory[key] = output

    def load_libraries(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Version and architectures of NVRTC libraries looked at before, by a stamp of the file.

        A file that is damaged, or of an earlier version, is as none: the libraries are asked again.
        """
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
            stored = json.loads(self._read(_LIBRARIES, _LIBRARIES_BYTES) or b"{}")
            libraries = unsealed(stored, ("libraries",))["libraries"]
            return {
                stamp: (str(version), tuple(map(int, architectures)))
                for stamp, (version, architectures) in libraries.items()
            }
        return {}

    def store_libraries(self, libraries: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        """Remember what ``load_libraries`` returns."""
        self._write(_LIBRARIES, json.dumps(sealed({"libraries": libraries})).encode())

    def _read(self, name: str, most_bytes: int) -> bytes | None:
        """A file that only this user and root can have written; None where there is none."""
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # a link would lead to what the checks below do not see; a pipe must not be waited for
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=directory)
            try:
                return self._content(directory, file, name, most_bytes)
            finally:
                os.close(file)
        except OSError:
            return None
        finally:
            os.close(directory)

    def _content(self, directory: int, file: int, name: str, most_bytes: int) -> bytes | None:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            return None
        if not self._ours(_closed(directory), self._directory):
            return None
        if not self._ours(status, self._directory / name):
            return None
        with os.fdopen(file, "rb", closefd=False) as stream:
            return stream.read(status.st_size)  # of more, as much memory is taken first

    def _ours(self, status: os.stat_result, path: Path) -> bool:
        """Return True if only this user and root can write a file; log the first that others can write."""
        if status.st_uid in (0, os.geteuid()) and not status.st_mode & _OF_OTHERS:
            return True
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            _log.warning(
                "cubin cache: %s can be written by others, so what it holds is not used: chmod go-w it, and"
                " see that it is yours",
                path,
            )
        return False

    def _write(self, name: str, data: bytes) -> bool:
        """Write a file whole or not at all; False where the directory does not take it, said once."""
        if not self._writable:
            return False
        temporary: str | None = None
        try:
            make_folder(self._directory)
            with tempfile.NamedTemporaryFile(dir=self._directory, delete=False) as stream:
                temporary = stream.name
                stream.write(data)
            Path(temporary).replace(self._directory / name)
        except OSError as error:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
            with self._lock:
                first, self._writable = self._writable, False
            if first:
                _log.warning("cubin cache %s: %s; keeping cubins in memory", self._directory, error)
            return False
        return True


def _closed(directory: int) -> os.stat_result:
    """The status of a directory; if it is this user's, others lose the right to write there."""
    status = os.fstat(directory)
    if status.st_uid == os.geteuid() and status.st_mode & _OF_OTHERS:  # made under a umask such as 002
        with contextlib.suppress(OSError):
            os.fchmod(directory, stat.S_IMODE(status.st_mode) & ~_OF_OTHERS)
            status = os.fstat(directory)
    return status


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + data).digest()


def _answer(key: str, data: bytes) -> Output | None:
    """Return the compiler output stored in a file; None if it is damaged."""
    digest, size, body = data[:32], int.from_bytes(data[32:_HEAD], "big"), data[_HEAD:]
    if len(data) < _HEAD or _digest(key, data[32:]) != digest:
        return None
    try:
        lowered_name, log, ptx, compiled, symbols, told = json.loads(body[:size])
        demands = None if told is None else _demands(*told)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (lowered_name, log, ptx, *symbols)
    if type(compiled) is not bool or not all(isinstance(text, str) for text in texts):
        return None
    return Output(body[size:] if compiled else None, lowered_name, log, tuple(symbols), ptx, demands)


def _demands(
    threads: int | None, shared_bytes: int, cluster: int, scratch: list[tuple[int, int]]
) -> LaunchDemands:
    return LaunchDemands(threads, shared_bytes, cluster, tuple(Scratch(*one) for one in scratch))
