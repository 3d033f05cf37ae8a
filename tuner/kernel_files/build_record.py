"""Build settings of a configuration beside its source: options, template arguments, launch parameters."""

from tuner.kernel_files.formulas import Environment, Template
from tuner.kernel_files.kernel_file import KernelFile, environment
from tuner.kernel_files.recipe import Recipe
from tuner.kernel_files.source_checks import follow_derived
from tuner.kernel_files.stage_recipe import StageRecipe
from tuner.model.errors import InputError
from tuner.model.plan import Configuration, Workload, without_priority
from tuner.model.run_document import Expanded

_DEFINES = ("-D", "--define-macro=")


def build_record(kernel: KernelFile, workload: Workload, configuration: Configuration) -> Expanded | None:
    """Return the build settings of a configuration; None if its tunables are only macros of the source.

    Returns:
        ``source``: of pragmas, what ``tuner kernels expand`` is given; else None. ``macros`` and further
        ``options`` that follow from tunables. ``entries``: functions that are launched. ``parameters``:
        tunables that neither an option nor a template argument tells: block sizes, or what libraries get.

    Raises:
        KernelFileError: the configuration cannot be launched.
    """
    values = without_priority(configuration)
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
    return {
        "source": kernel.source_to_expand,
        "macros": macros,
        "options": options,
        "entries": entries,
        "parameters": [name for name in configuration if name not in macros and name not in named],
    }


def fixed_options(kernel: KernelFile, workload: Workload, configuration: Configuration) -> list[str]:
    """Return the options of the compiler that no tunable decides, such as ``-std=c++17``.

    Raises:
        KernelFileError: the configuration cannot be launched.
    """
    values = without_priority(configuration)
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
