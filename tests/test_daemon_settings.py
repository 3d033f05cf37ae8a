"""daemon.toml: what is read, what is refused, and with which words."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tuner.daemon import settings_file
from tuner.daemon.settings import SetTable, Settings, WindowTable
from tuner.daemon.settings_file import MAX_BYTES, MAX_SHOWN, load, schema, table_of
from tuner.model.errors import InputError

EXAMPLE = Path(__file__).parent.parent / "systemd" / "daemon.toml"
PAGE = Path(__file__).parent.parent / "docs" / "daemon.md"
KEY = re.compile(r"^# (\[\[\w+\]\]|\w+ = .*)$", re.MULTILINE)


def written(folder: Path, text: str) -> Path:
    path = folder / "daemon.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    """What is said of a file, without its name."""
    path = written(folder, text)
    with pytest.raises(InputError) as caught:
        load(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return "\n".join(line.removeprefix(f"{path}: ") for line in lines)


def used(path: Path) -> str:
    """The example with every key that is commented out taken into use."""
    return KEY.sub(r"\1", path.read_text())


def test_the_example_says_the_defaults() -> None:
    """As it is shipped the example changes nothing: what is not commented out is the default."""
    assert load(EXAMPLE) == Settings()


def test_the_example_has_every_key(tmp_path: Path) -> None:
    """With all its keys taken into use the example is right, and no key of any table is missing from it."""
    settings = load(written(tmp_path, used(EXAMPLE)))

    assert settings.model_fields_set == set(Settings.model_fields)
    for name in Settings.model_fields:
        value = getattr(settings, name)
        for table in value if isinstance(value, tuple) else (value,):
            assert table.model_fields_set == set(type(table).model_fields), name


def test_commented_keys_of_single_tables_have_no_default() -> None:
    """A key of the example is commented out only where leaving it out means something of its own."""
    table = ""
    for line in EXAMPLE.read_text().splitlines():
        header = re.fullmatch(r"(?:# )?\[+(\w+)\]+", line)
        table = header[1] if header else table
        commented = re.fullmatch(r"# (\w+) = .*", line)
        model = table_of(table)
        if commented and model not in (SetTable, WindowTable):
            assert model is not None
            assert model.model_fields[commented[1]].default is None


def test_without_a_file_all_is_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's file need not be there, is read where it is, and a file that is named must be there."""
    missing = tmp_path / "daemon.toml"
    monkeypatch.setattr(settings_file, "SYSTEM_FILE", missing)

    assert load() == Settings()
    written(tmp_path, '[tuning]\nobjective = "time"')
    assert load().tuning.objective == "time"
    with pytest.raises(InputError, match=r"nowhere\.toml: cannot be read: No such file"):
        load(tmp_path / "nowhere.toml")


SET = "[[set]]\nname = 'a'\nworkloads = ['x']\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tuning]\npolcy = 'greedy'", "[tuning] polcy: unknown key; did you mean 'policy'?"),
        ("[tunning]\npolicy = 'greedy'", "[tunning]: unknown key; did you mean 'tuning'?"),
        ("[tuning]\npolicy = 'greddy'", "[tuning] policy: unknown policy 'greddy'; choose from"),
        ("[tuning]\nobjective = 'power'", "choose from time, energy, edp, ed2p"),
        (
            "[tuning]\nclocks = 'fast'",
            "[tuning] clocks: 'fast' is not a choice of clocks; write off, auto, all",
        ),
        ("[tuning]\nclient_clocks = 1", "[tuning] client_clocks: must be true or false"),
        ("[tuning]\nenergy_precision = nan", "[tuning] energy_precision: must be a finite number"),
        ("[tuning]\ntrial_timeout_s = '60'", "[tuning] trial_timeout_s: must be a number"),
        ("[limits]\nqueue = 0", "[limits] queue: 0 is out of range; must be at least 1"),
        ("[limits]\nqueue = 10.5", "[limits] queue: must be a whole number"),
        ("[limits]\nqueue = 2000-01-01", "[limits] queue: must be a whole number"),
        ("[[limits]]\nqueue = 1", "[limits]: must be a table"),
        ("[set]\nname = 'a'", "[set]: must be tables of the form [[set]]"),
        ("[[set]]\nname = 'a'", "[[set]] 1 workloads: is needed"),
        ("[[set]]\nname = 'a b'\nworkloads = ['x']", "[[set]] 1 name: 'a b' does not have the form"),
        ("[[set]]\nname = 'a'\nworkloads = 'x'", "[[set]] 1 workloads: must be a list"),
        ("[[set]]\nname = 'a'\nworkloads = ['x', 1]", "[[set]] 1 workloads, item 2: must be text"),
        (
            "[[set]]\nname = 'a'\nworkloads = ['x', 'x']",
            "[[set]] 1 workloads: 'x' stands there more than once",
        ),
        (SET * 2, "[[set]] 2 name: 'a' is the name of [[set]] 1 already"),
        (
            SET + "objective = 'time'\nmax_slowdown = 0.1",
            "[[set]] 1 max_slowdown: limits a search for energy",
        ),
        (
            SET + "objective = 'edp'\nruns_per_day = 9",
            "[[set]] 1 runs_per_day: measuring costs joules and seconds, not edp; use the objective time",
        ),
        (
            "service.devices = ['cuda:0']\n" + SET + "devices = ['cuda:1']",
            "[[set]] 1 devices: 'cuda:1' is none of [service] devices: cuda:0",
        ),
        ("service.devices = ['cuda']", "[service] devices: unknown device 'cuda'; choose cuda:N or one of"),
        ("service.devices = ['sim:jetson-tx2']", "did you mean 'sim:jetson-tx1'?"),
        ("service.devices = ['cuda:0', 'cuda:0']", "[service] devices: 'cuda:0' stands there more than once"),
        ("service.state = 'here'", "[service] state: 'here' must be a path from the root"),
        (f"service.socket = '/{'x' * 120}'", "longer than the 107 bytes that a socket's path may have"),
        ("service.group = ''", "[service] group: '' is no name of a group; name one, such as tuner"),
        ('service.group = "x\\u0000y"', "[service] group: 'x\\x00y' is no name of a group"),
        (
            'service.state = "/x\\u0000y"',
            "[service] state: '/x\\x00y' holds a character that no path can have",
        ),
        ("service.socket = '/'", "[service] socket: / is a directory; name a file in it"),
        ("service.state = '/etc/passwd'", "[service] state: /etc/passwd is a file; name a directory"),
        ("service.devices = ['cuda:99999']", "[service] devices: unknown device 'cuda:99999'"),
        (
            "[[set]]\nname = 'a'\nworkloads = ['ünï']",
            "[[set]] 1 workloads: 'ünï' is no workload; write a kernel",
        ),
        (SET + "priority = 1e7", "[[set]] 1 priority: 10000000.0 is out"),
        (SET + "runs_per_day = 1e308", "must be at most 1e+15"),
        ("[limits]\nkeep_days = 1e308", "[limits] keep_days: 1e+308 is out of range; must be at most 36500"),
        ("[idle]\ncalm_s = 1e308", "[idle] calm_s: 1e+308 is out of range; must be at most 86400"),
        ("[tcp]\nport = 0\ntoken_file = '/'", "[tcp] token_file: / is a directory; name a file in it"),
        ("kernels.directories = ['~/k']", "[kernels] directories: '~/k' must be a path from the root"),
        ("[[window]]\nstart = '0 22 * *'\nhours = 8", "[[window]] 1 start: '0 22 * *' has 4 fields, not 5"),
        ("[[window]]\nstart = '0 25 * * *'\nhours = 8", "'0 25 * * *' is no cron expression (bad hour)"),
        ("[[window]]\nstart = '0 0 30 2 *'\nhours = 8", "[[window]] 1 start: '0 0 30 2 *' is no cron"),
        ("[tcp]\nport = 70000\ntoken_file = '/t'", "70000 is out of range; must be at most 65535"),
        ("a = ", "not valid TOML: "),
        ("a = " + 5000 * "9", ""),
        ("a = " + 100_000 * "[", ""),
        ("#" * (MAX_BYTES + 1), "larger than 256 KiB"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    """Each mistake is refused with the key it is at, and with what would be right."""
    assert said in refusal(tmp_path, text)


def test_every_number_has_two_bounds() -> None:
    """No number may be so large or so small that what it is used for breaks."""
    properties = [
        (name, key, choice)
        for name, table in schema()["$defs"].items()
        for key, value in table["properties"].items()
        for choice in value.get("anyOf", [value])
    ]

    unbounded = [
        (name, key)
        for name, key, choice in properties
        if choice.get("type") in ("number", "integer")
        and not (choice.keys() & {"minimum", "exclusiveMinimum"} and "maximum" in choice)
    ]
    assert unbounded == []


def test_a_byte_order_mark_is_none_of_the_text(tmp_path: Path) -> None:
    """A file that an editor begins with a byte order mark is read as one without."""
    path = tmp_path / "daemon.toml"
    path.write_bytes(b"\xef\xbb\xbf[limits]\nqueue = 7\n")

    assert load(path).limits.queue == 7


def test_check_says_that_more_may_be_found(tmp_path: Path) -> None:
    """Mistakes of form hide those of meaning, and the check says so; what is found last says no more."""
    form = tuner("daemon", "--check", "--config", written(tmp_path, "[tuning]\npolcy = 'greedy'"))
    assert form.exit_code == 2
    assert "did you mean 'policy'?" in form.stderr
    assert form.stderr.endswith("\nmore mistakes may show when these are mended\n")
    unknown = "[[set]]\nname = 'a'\nworkloads = ['scan-l:N=4']"
    meaning = tuner("daemon", "--check", "--config", written(tmp_path, unknown))
    assert meaning.exit_code == 2
    assert "more mistakes" not in meaning.stderr
    missing = tuner("daemon", "--check", "--config", tmp_path / "none.toml")
    assert missing.exit_code == 2
    assert "cannot be read" in missing.stderr
    assert "more mistakes" not in missing.stderr


def test_check_tells_who_may_change_jobs_of_all(tmp_path: Path) -> None:
    """A user of ``manage`` that this machine does not know is named; an id need not be known."""
    text = "[limits]\nqueue_per_user = 7\nmanage = ['root', '4711', 'nobody-of-that-name']"
    told = tuner("daemon", "--check", "--config", written(tmp_path, text))
    assert told.exit_code == 0
    assert "jobs that wait: 1000 at most, 7 of one user\n" in told.stdout
    assert "root, 4711, nobody-of-that-name (no such user on this machine)\n" in told.stdout


@pytest.mark.parametrize("named", [False, True])
def test_check_tells_where_the_state_is(tmp_path: Path, named: bool) -> None:
    """Of the machine's file the service knows better, as its unit names the directory."""
    text = f"[service]\nstate = '{tmp_path}'" if named else ""
    told = tuner("daemon", "--check", "--config", written(tmp_path, text))

    assert ("under systemd, that of its unit\n" in told.stdout) == (not named)
    assert (f"state: {tmp_path}\n" in told.stdout) == named


@pytest.mark.parametrize("way", ["--check", "--foreground"])
def test_devices_of_the_command_line_are_checked(way: str, tmp_path: Path) -> None:
    """A name that no device can have is wrong input, as it is in the file."""
    path = written(tmp_path, "kernels.directories = []")
    result = tuner("daemon", way, "--config", path, "--device", "bogus", "--state", tmp_path / "state")

    assert result.exit_code == 2
    assert "Error: --device: unknown device 'bogus'; choose cuda:N or one of" in result.stderr
    assert list(tmp_path.iterdir()) == [path]


def test_every_mistake_has_a_line(tmp_path: Path) -> None:
    """Mistakes at several keys are all told, up to a number that can be read."""
    said = refusal(tmp_path, "[limits]\nqueue = 0\nfollowers = 0\nconnections = 0").splitlines()
    assert [line.partition(":")[0] for line in said] == [
        f"[limits] {name}" for name in ("connections", "queue", "followers")
    ]

    many = "".join(f"[[set]]\nname = ' '\nworkloads = ['k{n}']\n" for n in range(30))
    said = refusal(tmp_path, many).splitlines()
    assert len(said) == MAX_SHOWN + 1
    assert said[-1] == "and 20 more"


@pytest.mark.parametrize("raw", [b"\xff", b"a = '\xff'"])
def test_no_text_is_refused(tmp_path: Path, raw: bytes) -> None:
    """A file that is no UTF-8 text, and what is no file, are refused with words."""
    path = tmp_path / "daemon.toml"
    path.write_bytes(raw)

    with pytest.raises(InputError, match="not UTF-8 text"):
        load(path)
    with pytest.raises(InputError, match="is not a file"):
        load(tmp_path)


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1), inner)),
    max_leaves=4,
)
TABLES: dict[str, type[BaseModel]] = {
    name: model for name in Settings.model_fields if (model := table_of(name))
}
KEYS = sorted({name for model in TABLES.values() for name in model.model_fields})


@given(table=st.sampled_from(sorted(Settings.model_fields)), name=st.sampled_from(KEYS), value=VALUES)
def test_any_value_is_taken_or_refused(
    tmp_path_factory: pytest.TempPathFactory, table: str, name: str, value: Any
) -> None:
    """Whatever stands at a key, the file is either read or refused with an error of the right kind."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    header = f"[[{table}]]" if table in ("set", "window") else f"[{table}]"
    path.write_text(f"{header}\n{name} = {toml(value)}\n", encoding="utf-8")
    with suppress(InputError):
        assert isinstance(load(path), Settings)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # Python writes floats, infinities and not-a-number as TOML does
    return json.dumps(value).replace("\x7f", "\\u007f")


def test_the_schema_describes_every_key() -> None:
    """The JSON Schema has each table and key, each with a description, and allows no others."""
    document = schema()
    assert set(document["properties"]) == set(Settings.model_fields)
    for model in TABLES.values():
        described = document["$defs"][model.__name__]
        assert described["additionalProperties"] is False
        assert set(described["properties"]) == set(model.model_fields)
        assert all(entry.get("description") for entry in described["properties"].values()), model


def test_the_shipped_schema_is_that_of_the_code() -> None:
    """The schema beside the example, which editors complete from, is what the code says."""
    shipped = json.loads((EXAMPLE.parent / "daemon.schema.json").read_text())

    assert shipped == schema()


def test_the_documented_keys_are_those_there_are() -> None:
    """The page on the daemon lists every table with all its keys, and no other."""
    listed = dict(re.findall(r"^\| `\[+(\w+)\]+` \| (.*) \|$", PAGE.read_text(), re.MULTILINE))

    assert {table: set(re.findall(r"`(\w+)`", keys)) for table, keys in listed.items()} == {
        table: set(model.model_fields) for table, model in TABLES.items()
    }


def test_the_documented_settings_can_be_used(tmp_path: Path) -> None:
    """Settings that the pages show are read without a complaint."""
    text = PAGE.read_text() + PAGE.with_name("daemon-operation.md").read_text()
    shown = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    assert shown
    for text in shown:
        assert load(written(tmp_path, text)) != Settings()
