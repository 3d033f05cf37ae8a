"""``docs/pragmas.md`` shows what the tuner does."""

import re
from pathlib import Path

from cli_process import tuner

from tuner.kernel_files.pragmas.expansion import expansion, toml_text
from tuner.kernel_files.pragmas.syntax import LAUNCH_KEYS, STATEMENT_KEYWORDS
from tuner.kernel_files.pragmas.tunables import ALTERNATIVE_KEYWORDS as OF_ALTERNATIVES
from tuner.kernel_files.pragmas.tunables import TUNABLE_KEYWORDS as OF_TUNABLES
from tuner.system.untrusted.reading import load_toml

PAGE = (Path(__file__).parent.parent / "docs" / "pragmas.md").read_text()
CUDA = re.findall(r"^```cuda\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TOML = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_walk_through_shows_what_expand_shows() -> None:
    """The kernel file and the source of the page are those of its first file."""
    found = expansion(Path("axpb.cu"), CUDA[0])
    assert toml_text(found.document).strip() == TOML[0].strip()
    assert load_toml(TOML[0]) == found.document
    assert found.text.strip("\n") == CUDA[1].strip("\n")


def test_the_walk_through_runs(tmp_path: Path) -> None:
    """The file is well formed and can be tuned on the modelled H200 at the size of the page."""
    path = tmp_path / "axpb.cu"
    path.write_text(CUDA[0])
    assert f"next: tuner run {path}:N=4096\n" in tuner("kernels", "check", path).stdout
    words = ("--device", "sim:h200", "--budget", "4", "--database", tmp_path / "db.sqlite")
    assert tuner("run", f"{path}:N=1000000", *words).exit_code == 0
    expanded = tuner("kernels", "expand", path, "--output", tmp_path / "expanded")
    assert expanded.exit_code == 0
    checked = tuner("kernels", "check", tmp_path / "expanded" / "kernel.toml")
    assert checked.exit_code == 0
    assert "kernel axpb is well formed" in checked.stdout


def test_every_pragma_and_clause_is_on_the_page() -> None:
    """The table has all words that are read."""
    table = PAGE.partition("## All pragmas")[2].partition("## What is proved")[0]
    for word in (*STATEMENT_KEYWORDS, *OF_TUNABLES, *OF_ALTERNATIVES, "unroll", "tile", *LAUNCH_KEYS):
        assert re.search(rf"\b{word}\b", table), word


def test_the_messages_of_the_page_are_in_the_code() -> None:
    """The fixed parts of each message stand in a file of the room."""
    room = Path(expansion.__code__.co_filename).parent
    code = "".join(re.sub(r'"\s+f?"', "", path.read_text()) for path in room.glob("*.py"))
    table = PAGE.partition("## Messages")[2]
    parts = (
        *("in the source, which is none of the values", "is a tunable already, in line", "stands under"),
        *("with a default stands below it", "the range is empty: it begins with", "is carried from one"),
        *("is perfectly nested below it; the nest is over", "begins or ends within a statement"),
        *("it is not proved that tiles keep the order of writes to", "may overlap another array of the nest"),
        "is not read; write #pragma",
    )
    for part in parts:
        assert part in table
        assert part in code, part
