"""Records of a kernel in the document of a run: its file, and the build settings of a configuration."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.formulas import Environment, Template
from tuner.kernel_files.kernel_file import KernelFile, environment
from tuner.kernel_files.recipe import Recipe
from tuner.kernel_files.source_checks import follow_derived
from tuner.kernel_files.source_folder import kernels_root
from tuner.kernel_files.stage_recipe import StageRecipe
from tuner.model.errors import InputError
from tuner.model.plan import Configuration, Stage, TunableValue, Workload, without_place
from tuner.model.records import WorkloadName
from tuner.model.run_document import Expanded, KernelRecord, RunDocument
from tuner.system.untrusted.reading import TEXT_BYTES, plain, read_bytes

NVRTC, TRITON = "NVRTC", "Triton"
_KEPT_CHARACTERS = 2**18  # of a kernel file and its sources; a run of larger ones keeps the path alone


def kernel_record(kernel: KernelFile) -> KernelRecord | None:
    """A kernel file with its path and what it and its sources say; None of one of the package."""
    if kernel.path.is_relative_to(kernels_root()):
        return None
    path = _absolute(kernel.path)
    texts: dict[str, str] = {}
    with suppress(OSError, ValueError):  # of a program, or gone
        content = read_bytes(path, TEXT_BYTES)
        if hashlib.sha256(content).hexdigest() == kernel.text_sha256:  # it may have been written since
            texts[str(path)] = content.decode()
    for stage in kernel.recipe.stages:
        if isinstance(stage, StageRecipe) and stage.source.language != "cubin":
            texts.setdefault(str(_absolute(Path(stage.source.path))), stage.source.text)
    files = {name.removeprefix(f"{path.parent}/"): text for name, text in texts.items()}
    if any(
        plain(name) != name for name in (str(path), *files)
    ):  # bytes that are no UTF-8: no document holds them
        return {"path": "", "files": {}}
    small = sum(map(len, files.values())) <= _KEPT_CHARACTERS
    return {"path": str(path) if path.is_file() else "", "files": files if small else {}}


def _absolute(path: Path) -> Path:
    """The path from the root; as it is where the working directory is gone since the run began."""
    with suppress(OSError):
        return path.absolute()
    return path


def kernels_of(document: RunDocument | None, run: int | None) -> tuple[dict[str, KernelFile], dict[str, str]]:
    """The kernels of a run that came from files of their own, as these are now, and why others do not.

    Args:
        document: of a run that was stored here; None for any other, whose paths are those of another host.
        run: its number.
    """
    found: dict[str, KernelFile] = {}
    reasons: dict[str, str] = {}
    for workload in () if document is None else document["workloads"]:
        name, record = WorkloadName.parse(workload["name"]).kernel, workload.get("kernel_file")
        if record is None:
            continue
        path = record["path"]
        if not path:
            reasons[name] = f"run {run} keeps no path of it, as it came from a Python program"
        elif not Path(path).exists():
            reasons[name] = f"the file of run {run}, {path}, is gone"
        else:
            try:
                kernel = load_kernel_file(path)
            except InputError as error:
                reasons[name] = f"the file of run {run} cannot be used any more: {error}"
                continue
            if kernel.name == name:
                found[name] = kernel
            else:
                reasons[name] = f"the file of run {run}, {path}, is of the kernel {kernel.name} now"
    return found, reasons


def with_kernels_of(
    catalog: Catalog, document: RunDocument | None, run: int | None
) -> tuple[Catalog, dict[str, str]]:
    """A catalogue with the kernels of a run (``kernels_of``), and why others are not there.

    Files that the catalogue was given by name come first.
    """
    found, reasons = kernels_of(document, run)
    return catalog.with_kernels({name: found[name] for name in found if name not in catalog.own}), reasons


_DEFINES = ("-D", "--define-macro=")


def build_record(kernel: KernelFile, workload: Workload, configuration: Configuration) -> Expanded | None:
    """Return the build settings of a configuration; None if its tunables are only macros of the source.

    Returns:
        ``source``: of pragmas, what ``tuner kernels expand`` is given; else None. ``macros`` and further
        ``options`` that follow from tunables. ``entries``: functions that are launched. ``parameters``:
        tunables that neither an option nor a template argument tells: block sizes, or what libraries get.
        ``config``, where one function of Triton is launched: what its ``triton.Config`` holds.

    Raises:
        KernelFileError: the configuration cannot be launched.
    """
    values = without_place(configuration)
    launched = [stage for stage in kernel.launches(workload, values) if stage.library is None]
    named, tuned_options = _named_by_options(kernel.recipe, workload, values)
    defined: dict[str, set[str]] = {}
    options = []
    for option in dict.fromkeys(option for stage in launched for option in stage.options):
        name, value = _macro(option)
        if _defines(option, values, tuned_options):
            defined.setdefault(name, set()).add(value)
        elif option in tuned_options and option.startswith("-"):
            options.append(option)
    macros = {name: of.pop() for name, of in defined.items() if len(of) == 1}  # others differ by stage
    entries = list(dict.fromkeys(stage.entry for stage in launched))
    templates = any("<" in entry for entry in entries)
    if kernel.source_to_expand is None and not templates and set(macros) == set(configuration):
        return None
    record: Expanded = {
        "source": kernel.source_to_expand,
        "macros": macros,
        "options": options,
        "entries": entries,
        "parameters": [name for name in configuration if name not in macros and name not in named],
    }
    config = _triton_config(kernel.recipe, launched)
    if config is not None:
        record["config"] = config
    return record


def _triton_config(recipe: Recipe, launched: Sequence[Stage]) -> dict[str, TunableValue] | None:
    """Constants that tunables decide, and all options of Triton; None of several functions beside set-up."""
    functions = set()
    configs: list[dict[str, TunableValue]] = []
    for stage in launched:
        if stage.source.language != "triton" or stage.setup:
            continue
        functions.add(stage.entry)
        configs.append({})
        for one in stage.specialisation:
            names = {one.parameter}
            follow_derived(recipe.derived, names)
            if one.constant is not None and not names.isdisjoint(recipe.tunables):
                configs[-1][one.parameter] = one.constant
        for option in stage.options:
            name, _, text = option.partition("=")
            configs[-1][name] = int(text) if text.isdecimal() else text == "true"
    alike = len(functions) == 1 and configs.count(configs[0]) == len(configs)
    return configs[0] if alike else None


def compilers_of(kernel: KernelFile) -> list[str]:
    """Names of what makes the code of a kernel: ``NVRTC``, a language, or the program of a build command."""
    stages = (stage for stage in kernel.recipe.stages if isinstance(stage, StageRecipe))
    return list(dict.fromkeys(map(_compiler, stages)))


def _compiler(stage: StageRecipe) -> str:
    if stage.source.language == "cuda":
        return NVRTC
    if stage.source.language == "triton":
        return TRITON
    return stage.build[0].fill({}) if stage.build and stage.build[0].is_plain else stage.source.language


def fixed_options(kernel: KernelFile, workload: Workload, configuration: Configuration) -> list[str]:
    """Return the options of the compiler that no tunable decides, such as ``-std=c++17``.

    Raises:
        KernelFileError: the configuration cannot be launched.
    """
    values = without_place(configuration)
    _, tuned_options = _named_by_options(kernel.recipe, workload, values)
    launched = (stage for stage in kernel.launches(workload, values) if stage.library is None)
    return [
        option
        for option in dict.fromkeys(option for stage in launched for option in stage.options)
        if option not in tuned_options and not _defines(option, values, tuned_options)
    ]


def _defines(option: str, values: Configuration, tuned_options: set[str]) -> bool:
    """True for an option that defines a macro for a tunable."""
    name, _ = _macro(option)
    return bool(name) and (option in tuned_options or name in values)


def _named_by_options(recipe: Recipe, workload: Workload, values: Configuration) -> tuple[set[str], set[str]]:
    """The tunables that options and entries tell, and the options that do."""
    env = environment(recipe, workload, values)
    tuned = {*recipe.tunables, *recipe.derived}
    names: set[str] = set()
    options: set[str] = set()
    stages = [stage for stage in recipe.stages if isinstance(stage, StageRecipe)]
    entries = [stage.entry for stage in stages]
    for template in (*entries, *(option for stage in stages for option in stage.options)):
        text = None if template.names.isdisjoint(tuned) else _filled(template, env)
        if text is not None and (template in entries or text.startswith("-")):  # else the value of an option
            options.add(text)
            names |= template.names
    follow_derived(recipe.derived, names)
    return names, options


def _filled(template: Template, env: Environment) -> str | None:
    try:
        return template.fill(env)
    except InputError:  # of a stage that is not launched
        return None


def _macro(option: str) -> tuple[str, str]:
    """Name and value of the macro that an option defines; an empty name where it defines none."""
    prefix = next((word for word in _DEFINES if option.startswith(word)), None)
    name, _, value = ("" if prefix is None else option.removeprefix(prefix).strip()).partition("=")
    return name, value
