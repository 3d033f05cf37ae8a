"""What README and docs show exists: commands, options, links, keys, policies, devices, examples."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import host_build
import numpy as np
import pytest
from modelled import device, joules, makespan, scan
from test_time_model import MEASURED

from tuner.cli.main import main
from tuner.devices.gpu_models import gpu_model, gpu_names
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.schema import json_schema
from tuner.model import registry
from tuner.problems.lookup import problem_for

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("docs", "examples", "kernels", "benchmarks", "systemd", "tests")
TRACKED = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.md")))]
SHELL = ("", "sh", "bash", "shell", "console")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S+/)?(tuner(?: .*)?)$")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind == language]


def shown_commands() -> Iterator[Any]:
    for path in PAGES:
        for language, body in FENCE.findall(path.read_text()):
            if language in SHELL:
                for line in body.replace("\\\n", " ").splitlines():
                    found = COMMAND.match(line)
                    if found:
                        yield pytest.param(found[1], id=f"{path.name}: {found[1]}")


def words(line: str) -> list[str]:
    """The arguments of a command line, up to a pipe, a redirection or another command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;><")
    lexer.whitespace_split = True
    taken: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;><"):
            break
        taken.append(word)
    return taken[1:]


def parse(command: click.Command, args: list[str]) -> None:
    """Parse as click does, without callbacks: nothing is opened, written or run."""
    context = click.Context(command, info_name=command.name)
    values, rest, _ = command.make_parser(context).parse_args(args)
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if isinstance(value, (str, bool, int, tuple, list)):  # click marks what is not given
            parameter.type_cast_value(context, value)
    if not isinstance(command, click.Group):
        assert not rest, f"{command.name} takes no {rest}"
        return
    if rest:
        chosen = command.get_command(context, rest[0])
        assert chosen is not None, f"no such command: {rest[0]}"
        parse(chosen, rest[1:])


@pytest.mark.parametrize("line", list(shown_commands()))
def test_shown_commands_exist(line: str) -> None:
    """Every command line in a fenced block names commands and options there are, with values they take."""
    parse(main, words(line))


def test_commands_of_the_containerfile_exist() -> None:
    """What the image runs, and what its health check asks, are commands with options that there are."""
    text = (ROOT / "Containerfile").read_text()
    run = {word: json.loads(line) for word, line in re.findall(r"^(\w+) .*?(\[.*\])$", text, re.MULTILINE)}
    assert run["ENTRYPOINT"][-1] == run["HEALTHCHECK"][0] == "tuner"
    parse(main, run["CMD"])
    parse(main, run["HEALTHCHECK"][1:])


@pytest.mark.parametrize("line", ["tuner rum", "tuner run --objektive time", "tuner history --limit none"])
def test_wrong_commands_are_noticed(line: str) -> None:
    """The check above fails for a wrong command, option or value."""
    with pytest.raises((AssertionError, click.UsageError)):
        parse(main, words(line))


@pytest.mark.parametrize("path", TRACKED, ids=lambda path: path.name)
def test_no_line_is_a_comment_of_the_site(path: Path) -> None:
    """The site drops a line that begins with ``%``, in a list and behind a quotation mark, too."""
    lines = FENCE.sub("", path.read_text()).splitlines()
    assert [line for line in lines if re.match(r"[\s>*+-]*%", line)] == []


@pytest.mark.parametrize("path", TRACKED, ids=lambda path: path.name)
def test_no_underscore_of_a_name_is_lost(path: Path) -> None:
    """Outside code, ``__init__`` is a bold init: names of that form are written as code."""
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", FENCE.sub("", path.read_text()))
    assert re.findall(r"(?<!\w)__\w+__(?!\w)", text) == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_a_page_says_for_whom_it_is(path: Path) -> None:
    """The first sentence below the title begins with it."""
    title, empty, first = path.read_text().splitlines()[:3]
    assert title.startswith("# ")
    assert not empty
    assert first.startswith("For ")


def test_the_pages_for_users_are_short() -> None:
    """What a user reads fits into 60,000 words; how-tos, the lab and the architecture stand beside it."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    user_pages = [path for path in pages if path.stem != "architecture"]
    assert sum(len(path.read_text().split()) for path in user_pages) <= 60_000


@pytest.mark.parametrize(
    "asked",
    [
        *("list of sizes", "stop and resume", "cmake", "pytorch", "triton", "what was tried"),
        *("cluster", "tolerance", "rtx 4090", "amd"),
    ],
)
def test_a_heading_has_what_users_ask_for(asked: str) -> None:
    """The site's search puts headings first."""
    pages = [path for name in ("", "howto") for path in (ROOT / "docs" / name).glob("*.md")]
    text = "\n".join(FENCE.sub("", path.read_text()) for path in pages)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert any(asked in heading.lower() for heading in headings)


def test_what_was_tried_is_a_heading() -> None:
    """Of words that are in every text the site's search finds whole headings alone, up to twice as long."""
    assert "\n### What was tried\n" in page("run.md")


def test_tables_of_keys_have_heads() -> None:
    heads = re.findall(r"^(\|.*)\n\| ---", page("kernel-keys.md"), re.MULTILINE)
    assert [head for head in heads if not all(cell.strip() for cell in head.strip("|").split("|"))] == []


def test_the_pages_of_the_lab_are_short() -> None:
    """What was measured, and still holds, fits into 40,000 words."""
    pages = (ROOT / "docs" / "lab").rglob("*.md")
    assert sum(len(path.read_text().split()) for path in pages) <= 40_000


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_resolve(path: Path) -> None:
    """Every relative link leads to a file of the repository and, where it names one, to a heading in it."""
    for link in LINK.findall(FENCE.sub("", path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text()), link


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- docs/kernel-files.md, docs/kernel-keys.md -----------------------------------------------------


@pytest.fixture
def example(tmp_path: Path) -> KernelFile:
    """The longer kernel that docs/kernel-files.md shows."""
    text = page("kernel-files.md")
    (tmp_path / "saxpy.cu").write_text(blocks(text, "cuda")[2])
    (tmp_path / "kernel.toml").write_text(blocks(text, "toml")[-2])
    return load_kernel_file(tmp_path / "kernel.toml")


def test_the_first_example_is_among_the_examples() -> None:
    """The page begins with the files of examples/vector-add."""
    text, folder = page("kernel-files.md"), ROOT / "examples" / "vector-add"
    assert blocks(text, "cuda")[0] == (folder / "vector_add.cu").read_text()
    assert blocks(text, "toml")[0] == (folder / "kernel.toml").read_text()


def test_the_example_works_with_macros(tmp_path: Path) -> None:
    """The same kernel without a template gets its tunables as macros."""
    text = page("kernel-files.md")
    (tmp_path / "vector_add.cu").write_text(blocks(text, "cuda")[1])
    (tmp_path / "kernel.toml").write_text(blocks(text, "toml")[0])
    kernel = load_kernel_file(tmp_path / "kernel.toml")
    workload = kernel.workload({"N": 65536})
    (stage,) = kernel.plan(workload, kernel.default(workload)).stages
    assert (stage.entry, stage.options) == ("vector_add", ("-Dblock_size_x=128", "-Dloads=1"))


def test_example_loads(example: KernelFile) -> None:
    """The kernel file shown is well formed and has the space that the page says."""
    for workload in example.workloads():
        space = example.space(workload)
        assert (len(space), space.cartesian_size) == (24, 25)
        assert example.default(workload) in space
        for configuration in space:
            example.plan(workload, configuration)


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
def test_example_answers_rightly(example: KernelFile) -> None:
    """The kernel shown computes what its reference says, with blocks that end past the arrays too."""
    workload = example.workload({"N": 65536}, 3)
    sizes = {"N": 65536, "batch": 3}
    for P, L in ((1, 256), (16, 512)):
        chosen = next(c for c in example.space(workload) if (c["P"], c["L"]) == (P, L))
        plan = example.plan(workload, chosen)
        problem = problem_for(plan.problem)
        inputs = problem.inputs(np, np.random.default_rng(1), plan.buffers, sizes)
        arrays = {name: array.copy() for name, array in inputs.items()}
        host_build.run_plan(plan, arrays)
        assert problem.residual(np, inputs, {"y": arrays["y"]}, sizes).ok


def test_every_key_is_explained() -> None:
    """The section of each table of kernel.toml names every key of it that the JSON Schema has."""
    schema = json_schema()
    _, *parts = re.split(r"^### `\[+(\w+)\]+`$", page("kernel-keys.md"), flags=re.MULTILINE)
    sections = {name: text.split("\n## ")[0] for name, text in zip(parts[::2], parts[1::2], strict=True)}
    assert set(sections) == set(schema["properties"])
    for table, form in schema["properties"].items():
        for name in re.findall(r"#/\$defs/(\w+)", str(form)):
            for key in schema["$defs"][name]["properties"]:
                assert f"`{key}`" in sections[table], f"[{table}] {key}"


# --- docs/policies.md, docs/simulated-devices.md -------------------------------------------------


def test_every_policy_is_explained() -> None:
    """Each policy of the registry has a section."""
    assert set(registry.names("policy")) <= anchors(page("policies.md"))


@pytest.mark.parametrize("name", gpu_names())
def test_every_simulated_device_is_listed(name: str) -> None:
    """The table has a row for each simulated GPU, with its capability, multiprocessors and clocks."""
    (row,) = re.findall(rf"^\| `sim:{name}` \|.*$", page("simulated-devices.md"), re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    gpu = gpu_model(name)
    assert cells[2] == ".".join(map(str, gpu.limits.compute_capability))
    assert cells[3] == str(gpu.limits.multiprocessors)
    shown = cells[5]
    assert f"({len(gpu.clocks_mhz)})" in shown or shown == f"{', '.join(map(str, gpu.clocks_mhz))} MHz"
    assert str(gpu.clocks_mhz[-1]) in shown
    assert ("none" in cells[6]) == (not gpu.sensors)


def test_shown_comparison_is_the_present_models() -> None:
    """The table of an H200 against its model has the rows that are tested and what the model says today."""
    number = r"(\d+\.\d+)"
    rows = re.findall(
        rf"^\| (\d+), (\d+).*? \| {number} ms \| {number} ms \| .*? \| {number} mJ \| {number} mJ \|",
        page("simulated-devices.md"),
        re.MULTILINE,
    )
    assert len(rows) == len(MEASURED)
    sim = device()
    for row, (P, L, shared_bytes, time_ms, energy_mj) in zip(rows, MEASURED, strict=True):
        plan = scan(P, L, shared_bytes=shared_bytes)
        assert (int(row[0]), int(row[1]), float(row[2]), float(row[4])) == (P, L, time_ms, energy_mj)
        assert float(row[3]) == pytest.approx(makespan(sim, plan) * 1e3, abs=1e-4)
        assert float(row[5]) == pytest.approx(joules(sim, plan) * 1e3, abs=0.1)


# --- words ----------------------------------------------------------------------------------------


def sentences_of(path: Path) -> Iterator[str]:
    """Texts of a module with a space in them, without docstrings and texts below constants."""
    tree = ast.parse(path.read_text())
    unseen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unseen:
            yield from [node.value] if " " in node.value else []


def test_what_is_printed_uses_the_words_of_the_glossary() -> None:
    """No command, report or policy says what its last table replaces by another word."""
    table = page("glossary.md").partition("## Words that are not used")[2]
    rows = re.findall(r"^\| ([a-z, ]+) \| ([a-z, ]+) \|$", table, re.MULTILINE)[1:]
    unused = [word for words, _ in rows for word in words.split(", ")]
    clause = re.compile(rf"\b({'|'.join(unused)})s?\b", re.IGNORECASE)
    folders = (ROOT / "policies", *(ROOT / "tuner" / name for name in ("cli", "report", "search", "studies")))
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for folder in folders
        for path in folder.rglob("*.py")
        for text in sentences_of(path)
        if clause.search(text)
    ]

    assert len(unused) >= 7
    assert found == []


# --- the report ----------------------------------------------------------------------------------


def test_the_report_of_the_page_is_the_golden_one() -> None:
    """docs/run.md shows a report as the tests of the report have it, at 120 columns."""
    golden = (ROOT / "tests" / "data" / "report" / "one-energy.txt").read_text()
    whole = golden.split("=== 120 columns\n")[1].split("\n\n=== ")[0]

    assert whole in [body.rstrip("\n") for body in blocks(page("run.md"), "")]
