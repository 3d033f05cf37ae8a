"""``daemon.toml``: what the administrator wants tuned, when, and at what price."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tuner.model.options import JOB_OPTIONS, SearchOptions, option_field, with_options

_DAY_S = 86_400.0
_LONGEST_PERIOD_DAYS = 36_500.0  # beyond a century dates end; nobody waits for that
_MOST_GPUS = 64  # of a host
_MOST_JOULES = 1e12  # a day; ten thousand times what a GPU of 1 kW can spend
_PRIORITY = 1e6  # as a client may say
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


Manager = Annotated[str, Field(pattern="^[!-~]{1,256}$")]


class SettingsTable(BaseModel):
    """A table of the file; a key that is not known is an error, and so are infinity and not-a-number."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ServiceTable(SettingsTable):
    """Socket, its group, state directory and devices of the daemon."""

    socket: Path | None = Field(
        default=None, description="Unix socket; without one, that of the service manager."
    )
    group: str = Field(
        default="tuner", description="Group that may use the socket, where the daemon makes it."
    )
    state: Path | None = Field(default=None, description="Directory of the database and of compiled kernels.")
    devices: tuple[str, ...] = Field(
        default=(), description="Devices that are tuned on; empty for every GPU found."
    )


class KernelsTable(SettingsTable):
    """Folders of kernels beside those shipped."""

    directories: tuple[Path, ...] = Field(
        default=(Path("/etc/tuner/kernels.d"),),
        description="Owned by root or the service's user, and not writable by others, up to the root.",
    )


@with_options("tuning")
class TuningTable(SettingsTable):
    """Options of searches for which nobody gives others."""

    objective: str = option_field("objective", SearchOptions.objective, bounded=False)
    policy: str = option_field("policy", SearchOptions.policy, bounded=False)
    clocks: str = option_field("clocks", SearchOptions.clocks, bounded=False)
    client_clocks: bool = Field(default=False, description="Whether clients may ask for clocks of their own.")

    exclusive_board: bool = Field(
        default=False,
        description="Measure joules on one GPU of the host at a time, where load on others disturbs them.",
    )

    @property
    def options(self) -> dict[str, Any]:
        """Options of a job that says nothing of them."""
        return self.model_dump(include=set(JOB_OPTIONS))


@with_options("set")
class SetTable(SettingsTable):
    """Workloads that run together, tuned when the daemon has nothing else to do."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="For people; each once.")
    workloads: tuple[str, ...] = Field(
        min_length=1, description="As `tuner run` takes them, e.g. 'scan-lf:N=1024'."
    )
    objective: str | None = Field(default=None, description="That of [tuning] otherwise.")
    policy: str | None = Field(default=None, description="That of [tuning] otherwise.")
    clocks: str | None = Field(default=None, description="Those of [tuning] otherwise.")
    priority: float = Field(
        default=0.0,
        ge=-_PRIORITY,
        le=_PRIORITY,
        description="The highest goes first; clients' jobs have 0 at most ([limits] highest_priority).",
    )
    devices: tuple[str, ...] = Field(
        default=(),
        description="Each of [service] otherwise; 'kind:MODEL' or 'kind:MODEL@DRIVER' for one GPU of a kind,"
        " 'any' for one of all.",
    )

    @property
    def options(self) -> dict[str, Any]:
        """Options that the set chooses."""
        return self.model_dump(include=set(JOB_OPTIONS), exclude_none=True)


class BudgetTable(SettingsTable):
    """Budget of tuning per day, local time; clients' jobs count too."""

    seconds_per_day: float | None = Field(
        default=None, ge=0, le=_DAY_S, description="Of measuring, on each GPU."
    )
    joules_per_day: float | None = Field(
        default=None, ge=0, le=_MOST_JOULES, description="Of measuring, on each GPU."
    )
    host_seconds_per_day: float | None = Field(
        default=None, ge=0, le=_MOST_GPUS * _DAY_S, description="Of measuring, on all GPUs together."
    )
    host_joules_per_day: float | None = Field(
        default=None, ge=0, le=_MOST_JOULES, description="Of measuring, on all GPUs together."
    )


class WindowTable(SettingsTable):
    """When tuning is allowed; without windows, always."""

    start: str = Field(description="Cron expression in local time, e.g. '0 22 * * 1-5'.")
    hours: float = Field(gt=0, le=168, description="How long from there on.")
    devices: tuple[str, ...] = Field(
        default=(), description="Devices that it holds for, also 'kind:MODEL'; empty for all of the host."
    )


class IdleTable(SettingsTable):
    """Precedence of the machine's own work over tuning."""

    test: bool = Field(default=True, description="Give way within a second to others who use the GPU.")
    others_allowed: int = Field(
        default=0, ge=0, le=10_000, description="Processes of others on the GPU that do not count."
    )
    busy_percent: float = Field(
        default=10.0, gt=0, le=100, description="Load that counts, where it can be told."
    )
    look_every_s: float = Field(default=0.25, ge=0.05, le=0.5, description="While a job runs or waits.")
    calm_s: float = Field(
        default=10.0, ge=0, le=_DAY_S, description="So long free before a job begins or goes on."
    )


class OnlineTable(SettingsTable):
    """Actions that follow a request for the best configuration."""

    refine: bool = Field(default=True, description="Queue a search for what was never tuned.")
    sample_every_hours: float = Field(
        default=24.0,
        ge=0,
        le=24 * _LONGEST_PERIOD_DAYS,
        description="Measure a served answer again; 0 never.",
    )
    retune_stale: bool = Field(
        default=True, description="Search again after a change of driver, CUDA, GPU or kernel source."
    )


class LimitsTable(SettingsTable):
    """Limits of the daemon for its clients."""

    body_bytes: int = Field(default=65_536, ge=1024, le=2**20, description="Of one request.")
    requests_per_s: float = Field(default=2000.0, gt=0, le=1e6, description="Of one user.")
    connections: int = Field(default=256, ge=4, le=10_000, description="Open at a time.")
    queue: int = Field(default=1000, ge=1, le=100_000, description="Jobs that wait at most.")
    queue_per_user: int = Field(
        default=250, ge=1, le=100_000, description="Of one user; root and the daemon's user are free."
    )
    highest_priority: float = Field(
        default=0.0,
        ge=-_PRIORITY,
        le=_PRIORITY,
        description="Up to here a priority counts between users; beyond, among a user's own jobs only.",
    )
    manage: tuple[Manager, ...] = Field(
        default=(), max_length=1000, description="Users (name or id) who may change jobs of all; '*' for all."
    )
    followers: int = Field(default=64, ge=1, le=10_000, description="Event streams open at a time.")
    request_timeout_s: float = Field(default=10.0, gt=0, le=600, description="For a request to arrive whole.")
    keep_days: float = Field(
        default=90.0, gt=0, le=_LONGEST_PERIOD_DAYS, description="How long ended jobs are listed."
    )


class TcpTable(SettingsTable):
    """The same interface on the loopback; off unless a port is named."""

    port: int | None = Field(default=None, ge=0, le=65535, description="0 for any free one.")
    token_file: Path | None = Field(
        default=None, description="Of older versions: its token is taken over, once; leave the key out."
    )
    open_health: bool = Field(
        default=False, description="Let probes ask for /healthz and /readyz without a token."
    )


class Settings(SettingsTable):
    """The whole file."""

    service: ServiceTable = ServiceTable()
    kernels: KernelsTable = KernelsTable()
    tuning: TuningTable = TuningTable()
    set: tuple[SetTable, ...] = ()
    budget: BudgetTable = BudgetTable()
    window: tuple[WindowTable, ...] = ()
    idle: IdleTable = IdleTable()
    online: OnlineTable = OnlineTable()
    limits: LimitsTable = LimitsTable()
    tcp: TcpTable = TcpTable()


def bound(kind: str, context: Mapping[str, Any]) -> str:
    """Which bound a number breaks, as ``must be at most 5``; empty for a mistake of another kind."""
    if kind not in _BOUNDS:
        return ""
    words, name = _BOUNDS[kind]
    limit = context[name]
    return f"must be {words} {limit if isinstance(limit, int) else format(limit, 'g')}"
