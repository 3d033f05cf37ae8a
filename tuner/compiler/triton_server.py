"""Triton in a compile child: a Python file is run here and nowhere else, and its function becomes a cubin.

The child may run in the interpreter of an application, which has Triton and what the file imports, but not
what the tuner needs: this module imports nothing but Triton, the standard library and modules like itself.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

from tuner.compiler.nvrtc import Output, confined
from tuner.compiler.ptx import excerpt
from tuner.model.errors import CompileError, CompilerUnavailableError
from tuner.model.plan import LaunchDemands, Scratch

OLDEST, NEWEST = (3, 4), (3, 9)
"""Versions of Triton that the tests are run with; others are refused by name."""
TESTED = " to ".join(".".join(map(str, numbers)) for numbers in (OLDEST, NEWEST))

MOST_DATA_BYTES = 8 * 2**30
"""Private memory of a child: a file that takes more fails, whatever the machine has."""

_MOST_FILE_BYTES = 2**30  # of what is printed, too

INSIDE = "TUNER_COMPILES_TRITON"
"""Variable of the environment that code which is run in such a child finds set."""

_FOLDER = "tuner-triton-"
_TYPES = {
    "bool": "u1",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)},
    "bfloat16": "bf16",
}
_DIVISOR = 16  # the one divisor that Triton makes use of
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)", re.DOTALL)
_DTYPE = re.compile(r"tl\.(\w+)")

_Result = TypeVar("_Result")

Parameter = tuple[str, str, int, Any, Any]
"""Name, NumPy's dtype with an asterisk for an address, what divides it, a constant, what heuristics see."""


def digest(text: str) -> str:
    """Digest of the text of a file, however its lines end."""
    return hashlib.sha256(text.removeprefix("\ufeff").replace("\r\n", "\n").encode()).hexdigest()


class TritonServer:
    """Server of a compile child process.

    Args:
        python: interpreter that this is to be; said in messages.

    Raises:
        CompilerUnavailableError: Triton is not installed here, or has no version that is known.
    """

    def __init__(self, python: str) -> None:
        for limit, most in (
            (resource.RLIMIT_DATA, MOST_DATA_BYTES),
            (resource.RLIMIT_FSIZE, _MOST_FILE_BYTES),
            (resource.RLIMIT_CORE, 0),
        ):
            soft, hard = resource.getrlimit(limit)
            resource.setrlimit(limit, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard))
        os.environ[INSIDE] = "1"
        os.environ.pop("TRITON_INTERPRET", None)
        self._folder = _own_folder()
        os.environ["TRITON_CACHE_DIR"] = os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder)
        sys.dont_write_bytecode = True
        self._output = os.open(self._folder / "output", os.O_RDWR | os.O_CREAT, 0o600)
        for stream in (1, 2):  # what is printed here is of nobody's interest unless the child ends by it
            os.dup2(self._output, stream)
        self._version = usable_version(python)
        self._loaded: dict[str, _Loaded] = {}
        self._active: _Loaded | None = None

    def key(self, path: str, sha256: str, entry: str, architecture: str) -> tuple[str, ...]:
        """All that an answer depends on beside what is asked.

        Returns:
            Versions of Triton and of ptxas, Triton's digest of the function and of all that it calls, and
            what it heeds of the environment.

        Raises:
            CompileError: the file cannot be run, or has no such kernel.
        """
        return self._confined(lambda: self._key(path, sha256, entry, architecture))

    def _key(self, path: str, sha256: str, entry: str, architecture: str) -> tuple[str, ...]:
        from triton._C.libtriton import get_cache_invalidating_env_vars  # noqa: PLC0415 - as of the child
        from triton.compiler.compiler import make_backend  # noqa: PLC0415

        function, _ = self._function(path, sha256, entry)
        library = _library_stamp()
        backend = make_backend(_target(architecture))
        variables = sorted(get_cache_invalidating_env_vars().items())
        try:
            return self._version, library, str(backend.hash()), function.cache_key, repr(variables)
        except Exception as error:  # a function that it calls is not jitted, or a global is no constexpr
            raise CompileError(f"{Path(path).name}: {_told(error)}") from error

    def compile(  # noqa: PLR0917 - crosses a pipe as it stands
        self,
        path: str,
        sha256: str,
        entry: str,
        parameters: tuple[Parameter, ...],
        options: tuple[tuple[str, Any], ...],
        architecture: str,
    ) -> Output:
        """Compile one function for what is known of its parameters.

        Args:
            path: of the Python file.
            sha256: digest of the text that it must have.
            entry: name of the function.
            parameters: those that are passed, and constants; others have their default or a heuristic.
            options: of Triton, by name.
            architecture: e.g. ``sm_90``.

        Raises:
            CompileError: the file cannot be run, or has no such kernel.
        """
        return self._confined(
            lambda: self._compile(path, sha256, entry, parameters, dict(options), architecture)
        )

    def _compile(  # noqa: PLR0917 - as above
        self,
        path: str,
        sha256: str,
        entry: str,
        parameters: tuple[Parameter, ...],
        options: dict[str, Any],
        architecture: str,
    ) -> Output:
        from triton.compiler import ASTSource  # noqa: PLC0415 - as of the child
        from triton.compiler import compile as compiled_by_triton  # noqa: PLC0415

        function, heuristics = self._function(path, sha256, entry)
        name = Path(path).name
        self._forget_output()
        try:
            values = _values(function, parameters, options, heuristics)
            signature, constants, divisible = _signature(function, parameters, values)
        except _MisfitError as error:
            return Output(None, "", f"error: {name}: {entry}: {error}")
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=divisible)
        with _ptxas_log() as log, self._empty_cache():
            try:
                kernel = compiled_by_triton(source, target=_target(architecture), options=dict(options))
            except Exception as error:  # noqa: BLE001 - whatever its front end, its passes and ptxas raise
                return Output(None, "", f"error: {_where(error, function, name)}\n{self._printed()}")
            return _output(kernel, "".join(log))

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _confined(self, work: Callable[[], _Result]) -> _Result:
        """Call what may run the code of a file: it reads all that this user may, and writes to one folder."""
        return confined(work, ["/"], [str(self._folder), "/dev/null"])

    def _function(self, path: str, sha256: str, entry: str) -> tuple[Any, list[Mapping[str, Any]]]:
        """The jitted function of a file, and the heuristics around it, the outer ones first."""
        loaded = self._loaded.get(path)
        usable = loaded is not None and loaded.sha256 == sha256 and loaded.current()
        if self._active is not None and not (usable and self._active is loaded):
            self._active.leave()
            self._active = None
        if loaded is None or not usable:
            self._loaded[path] = loaded = _Loaded(path, sha256)
        elif self._active is None:
            loaded.enter()
        self._active = loaded
        found = loaded.functions.get(entry)
        if found is None:
            found = loaded.functions[entry] = _jitted(loaded.module, Path(path).name, entry)
        return found

    @contextlib.contextmanager
    def _empty_cache(self) -> Iterator[None]:
        """Have Triton write what it writes to a folder that goes at the end."""
        folder = self._folder / "cache"
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            before = os.environ["TRITON_CACHE_DIR"]
            os.environ["TRITON_CACHE_DIR"] = str(folder)
            stack.callback(os.environ.__setitem__, "TRITON_CACHE_DIR", before)
            yield

    def _forget_output(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.ftruncate(self._output, 0)
        os.lseek(self._output, 0, os.SEEK_SET)

    def _printed(self) -> str:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return os.pread(self._output, 2**16, 0).decode(errors="replace").replace("\0", "")


class _MisfitError(Exception):
    """Raised where what is known of the parameters does not fit the function."""


class _Loaded:
    """A file that was run as a module, with the modules of projects that it imported.

    Those of another file may have the same names: between its calls a file has none in the interpreter.
    """

    def __init__(self, path: str, sha256: str) -> None:
        self.sha256 = sha256
        self.functions: dict[str, tuple[Any, list[Mapping[str, Any]]]] = {}
        name = Path(path).name
        try:
            text = _decoded(Path(path).read_bytes())
        except OSError as error:
            raise CompileError(f"{path}: cannot be read: {error.strerror}") from error
        if digest(text) != sha256:
            raise CompileError(f"{name}: has changed since it was read")
        package, self._root = _place(Path(path))
        self._before = set(sys.modules)
        self._modules: dict[str, ModuleType] = {}
        importlib.invalidate_caches()
        self.enter()
        try:
            self.module = _imported(Path(path), package)
        except BaseException as error:  # SystemExit too: whatever a file does when it is run
            self.leave()
            raise CompileError(f"{name}: cannot be imported: {_told(error)}{_advice(error)}") from error
        self._stamps = {file: _stamp(file) for file in map(_file, self._own().values()) if file}

    def current(self) -> bool:
        """Return True while no file that was run has changed."""
        return all(_stamp(file) == stamp for file, stamp in self._stamps.items())

    def enter(self) -> None:
        """Let the names of modules mean its own, those too that are imported when it is called."""
        sys.path.insert(0, self._root)
        sys.modules.update(self._modules)

    def leave(self) -> None:
        """Take its modules out of the interpreter."""
        with contextlib.suppress(ValueError):
            sys.path.remove(self._root)
        self._modules = self._own()
        for name in self._modules:
            del sys.modules[name]

    def _own(self) -> dict[str, ModuleType]:
        names = (name for name in set(sys.modules) - self._before if name.partition(".")[0] not in _SHARED)
        return {name: sys.modules[name] for name in names if _is_of_project(sys.modules[name])}


_SHARED = ("triton", "tuner")  # one for all files, in a checkout too


def _decoded(content: bytes) -> str:
    """The text of a file as whoever wrote the digest read it."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _own_folder() -> Path:
    """A folder of this process; those of processes that were killed go."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            process = int(left.name.split("-")[2])
            if left.lstat().st_uid == os.getuid() and not Path(f"/proc/{process}").exists():
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=root))


def is_tested(version: str) -> bool:
    """True for a version of Triton that the tests are run with."""
    return OLDEST <= tuple(map(int, re.findall(r"\d+", version)[:2])) <= NEWEST


def usable_version(python: str) -> str:
    """The version of Triton in this interpreter.

    Raises:
        CompilerUnavailableError: it has none, or one that no test is run with.
    """
    try:
        version = str(importlib.import_module("triton").__version__)
    except ImportError as error:
        raise CompilerUnavailableError(
            f"{python}: Triton cannot be imported ({error}); pip install triton, or {_ANOTHER}"
        ) from error
    if not is_tested(version):
        raise CompilerUnavailableError(
            f"{python}: Triton {version} is not among the versions that are tested, {TESTED}; install one of"
            f" these, or {_ANOTHER}"
        )
    return version


_ANOTHER = 'name an interpreter that has it: build = ["…/python"] in [kernel]'


def _advice(error: BaseException) -> str:
    """Advice for a file that cannot be imported; empty where its own error says it."""
    if isinstance(error, ModuleNotFoundError):
        return f"; install it here, or {_ANOTHER}"
    if "active drivers" in str(error):  # of Triton, without a GPU
        return "; it asks for a GPU when it is imported: let a function do that, or the main program"
    return ""


def _library_stamp() -> str:
    """Tells builds of one version apart."""
    spec = importlib.util.find_spec("triton._C.libtriton")
    status = Path(spec.origin).stat() if spec and spec.origin else None
    return f"{status.st_size} {status.st_mtime_ns}" if status else ""


def _target(architecture: str) -> Any:  # noqa: ANN401 - Triton has no types
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - as of the child

    return GPUTarget("cuda", int(re.sub(r"\D", "", architecture)), 32)


def _place(path: Path) -> tuple[list[str], str]:
    """The packages that a file is in, and the folder that its own imports begin in."""
    package: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        package.insert(0, folder.name)
        folder = folder.parent
    return package, str(folder)


def _imported(path: Path, package: Sequence[str]) -> ModuleType:
    """Run a file as the module of its package that it is, or as one of its own."""
    if package:
        return importlib.import_module(".".join([*package, path.stem]))
    name = f"kernel_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_of_project(module: ModuleType | None) -> bool:
    """True for a module that somebody may be working on: of no installed package, nor of Python itself."""
    file = Path(_file(module))
    installed = "site-packages" in file.parts or "dist-packages" in file.parts
    return file.is_absolute() and not installed and not file.is_relative_to(_STANDARD)


_STANDARD = Path(os.__file__).parent


def _file(module: ModuleType | None) -> str:
    """The file of a module, or the folder of a package that has none."""
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")


def _stamp(file: str) -> tuple[int, int]:
    try:
        status = Path(file).stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _jitted(module: ModuleType, name: str, entry: str) -> tuple[Any, list[Mapping[str, Any]]]:
    """The function below autotuning and heuristics, and the heuristics.

    Raises:
        CompileError: there is none, or it is of another kind.
    """
    from triton.runtime.jit import JITFunction  # noqa: PLC0415 - as of the child

    function = getattr(module, entry, None)
    heuristics: list[Mapping[str, Any]] = []
    while function is not None and not isinstance(function, JITFunction) and hasattr(function, "fn"):
        if isinstance(getattr(function, "values", None), Mapping):
            heuristics.append(function.values)
        function = function.fn
    if not isinstance(function, JITFunction):
        kind = "no function of this name" if function is None else "a function without @triton.jit"
        raise CompileError(f"{name}: {entry} is {kind}")
    if function.is_gluon():
        raise CompileError(f"{name}: {entry} is written in Gluon, which is not supported")
    return function, heuristics


class _Array:
    """An array as heuristics see it: they run where no arrays are."""

    def __init__(self, dtype: str, shape: tuple[int, ...], alignment: int) -> None:
        torch = sys.modules.get("torch")
        self.dtype = getattr(torch, dtype, dtype)
        self.shape = shape
        self.ndim = len(shape)
        self._alignment = alignment

    def data_ptr(self) -> int:
        return self._alignment

    def numel(self) -> int:
        product = 1
        for extent in self.shape:
            product *= extent
        return product

    def dim(self) -> int:
        return self.ndim

    def size(self, axis: int | None = None) -> Any:  # noqa: ANN401 - as of torch
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis: int | None = None) -> Any:  # noqa: ANN401 - same
        strides: list[int] = []
        product = 1
        for extent in reversed(self.shape):
            strides.insert(0, product)
            product *= extent
        return tuple(strides) if axis is None else strides[axis]

    def is_contiguous(self) -> bool:
        return True


def _values(
    function: Any,  # noqa: ANN401 - Triton has no types
    parameters: Sequence[Parameter],
    options: Mapping[str, Any],
    heuristics: Sequence[Mapping[str, Callable[[Mapping[str, Any]], Any]]],
) -> dict[str, Any]:
    """The values of constants by name: those given, then those of heuristics, which see all arguments.

    Raises:
        _MisfitError: one is unknown, or a heuristic raises.
    """
    names = {one.name for one in function.params}
    constants: dict[str, Any] = {}
    seen: dict[str, Any] = dict(options)
    for name, dtype, alignment, constant, value in parameters:
        if name not in names:
            raise _MisfitError(f"has no parameter {name!r}; it has {', '.join(sorted(names))}")
        if not dtype:
            constants[name] = seen[name] = _constant(constant)
        elif dtype.startswith("*"):
            seen[name] = _Array(dtype[1:], value or (), alignment)
        else:
            seen[name] = value
    for values in heuristics:
        for name, heuristic in values.items():
            try:
                constants[name] = seen[name] = heuristic(seen)
            except Exception as error:  # noqa: PERF203 - whatever a function of the user's raises
                raise _MisfitError(f"the heuristic of {name} raises {_told(error)}") from error
    return constants


def _constant(value: Any) -> Any:  # noqa: ANN401 - of any type that a constexpr may have
    """A constant; a text such as ``tl.float16`` is the type of this name."""
    match = _DTYPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    return getattr(importlib.import_module("triton.language"), match[1], value)


def _signature(
    function: Any,  # noqa: ANN401 - Triton has no types
    parameters: Sequence[Parameter],
    values: Mapping[str, Any],
) -> tuple[dict[str, str], dict[tuple[int], Any], dict[tuple[int], list[list[Any]]]]:
    """Types, constants and what is divisible, as ``ASTSource`` has them.

    Raises:
        _MisfitError: a parameter has neither value nor type, or another type than its annotation.
    """
    passed = {name: (dtype, alignment) for name, dtype, alignment, _, _ in parameters if dtype}
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    divisible: dict[tuple[int], list[list[Any]]] = {}
    for number, one in enumerate(function.params):
        name = one.name
        if name in passed:
            dtype, alignment = passed[name]
            if one.is_constexpr:
                raise _MisfitError(f"{name} is a tl.constexpr, and no argument is passed for it")
            signature[name] = _type(one, dtype)
            if alignment % _DIVISOR == 0:
                if one.do_not_specialize or one.do_not_specialize_on_alignment:
                    raise _MisfitError(f"{name}: do_not_specialize is no list of names in the source")
                divisible[number,] = [["tt.divisibility", _DIVISOR]]
        elif name in values or (one.has_default and one.is_constexpr):
            signature[name] = "constexpr"
            constants[number,] = values.get(name, one.default)
        else:
            kind = "a tl.constexpr without a value" if one.is_constexpr else "a parameter without an argument"
            raise _MisfitError(f"{name} is {kind}")
    return signature, constants, divisible


def _type(one: Any, dtype: str) -> str:  # noqa: ANN401 - a parameter of Triton
    """Triton's name of a type."""
    pointer, bare = dtype.startswith("*"), dtype.removeprefix("*")
    if bare not in _TYPES:
        raise _MisfitError(f"{one.name}: Triton has no type {bare}")
    told = f"*{'k' if one.is_const else ''}{_TYPES[bare]}" if pointer else _TYPES[bare]
    annotated = str(one.annotation_type or "")
    if annotated not in ("", told):
        raise _MisfitError(
            f"{one.name} is annotated as {annotated}, and its argument is {bare}{' *' * pointer}"
        )
    return told


def type_of_triton(dtype: str) -> str:
    """Triton's name of a NumPy dtype name, with an asterisk for an address.

    Raises:
        KeyError: it has none.
    """
    return f"{'*' * dtype.startswith('*')}{_TYPES[dtype.removeprefix('*')]}"


@contextlib.contextmanager
def _ptxas_log() -> Iterator[list[str]]:
    """Keep what ptxas says of registers and spills, which Triton asks for and throws away."""
    module: Any = importlib.import_module("triton.backends.nvidia.compiler")
    own: Any = module.subprocess
    kept: list[str] = []

    def run(*args: Any, stderr: Any = None, **options: Any) -> Any:  # noqa: ANN401 - as of subprocess
        result = own.run(*args, stderr=stderr, **options)
        if hasattr(stderr, "name"):
            kept.append(Path(stderr.name).read_text(errors="replace"))
        return result

    module.subprocess = SimpleNamespace(**{**vars(own), "run": run})
    try:
        yield kept
    finally:
        module.subprocess = own


def _output(kernel: Any, log: str) -> Output:  # noqa: ANN401 - a compiled kernel of Triton
    """The code that Triton made, and what a launch of it must have."""
    metadata, ptx = kernel.metadata, str(kernel.asm["ptx"])
    match = next((found for found in _ENTRY.finditer(ptx) if found[1] == metadata.name), None)
    if match is None:
        return Output(None, "", f"error: Triton's PTX has no entry {metadata.name}")
    passed = sum(kind != "constexpr" for kind in kernel.src.signature.values())
    hidden = match[2].count(".param") - passed
    scratch = [
        Scratch(
            getattr(metadata, f"{kind}_scratch_size", 0) or 0,
            getattr(metadata, f"{kind}_scratch_align", 1) or 1,
        )
        for kind in ("global", "profile")
    ]
    if not 0 <= hidden <= len(scratch):
        return Output(
            None, "", f"error: {metadata.name} takes {hidden} parameters beside {passed} that it states"
        )
    demands = LaunchDemands(
        threads=32 * metadata.num_warps,
        shared_bytes=metadata.shared,
        cluster=metadata.num_ctas,
        scratch=tuple(scratch[:hidden]),
    )
    return Output(kernel.asm["cubin"], metadata.name, log, (), excerpt(ptx, metadata.name, ()), demands)


def _where(error: Exception, function: Any, name: str) -> str:  # noqa: ANN401 - a function of Triton
    """An error of Triton's in one line, with the line of the file where it is in the function itself."""
    place, text = name, ""
    source: BaseException | None = error
    while source is not None:  # an error in a function that is called is the cause of one in its caller
        node: Any = getattr(source, "node", None)
        if hasattr(node, "lineno"):
            if getattr(source, "src", None) == function.src:
                place = f"{name}, line {_def_line(function) + node.lineno - 1}"
            text = getattr(source, "error_message", None) or text
        else:
            text = _told(source)
        source = source.__cause__
    return f"{place}: {' '.join(text.split()) or _told(error)}"


def _def_line(function: Any) -> int:  # noqa: ANN401 - same
    """The line of its file that a jitted function's ``def`` is in."""
    lines, first = inspect.getsourcelines(function.fn)
    decorators = next((number for number, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return max(first, 1) + decorators


def _told(error: BaseException) -> str:
    """An exception in one line; of ptxas what that says."""
    ptxas = re.search(r"^ptxas\S*\s+(?:error|fatal)\s*:.*", str(error), re.MULTILINE)
    if ptxas is not None:
        return ptxas[0]
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
