"""The words of the project as values: workload, configuration, plan, trial, measurement.

All values are frozen, hashable where a policy may want them as keys, and plain enough to cross a pipe to
a worker process. Times are seconds, energies joules, powers watts, clocks megahertz, sizes bytes.
"""

from tuner.model.arguments import Scalar, StructValue, TensorMap
from tuner.model.chains import BufferView, LibraryCall, Operand
from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.inputs import DataFile, InputKind, InputSpec, PythonFunction
from tuner.model.long_run import stated
from tuner.model.pareto import non_dominated
from tuner.model.plan import (
    STREAM_PRIORITY,
    Buffer,
    BufferRole,
    Configuration,
    Plan,
    ProblemSpec,
    Resources,
    Source,
    Stage,
    StageArgument,
    TunableValue,
    Work,
    Workload,
    shown_values,
    tunable_names,
    with_priority,
    without_priority,
)
from tuner.model.records import RunStatus
from tuner.model.row_layout import DENSE, RowLayout
from tuner.model.sealing import sealed, unsealed
from tuner.model.trial import (
    SAME_GPU,
    AnchorRatio,
    Energy,
    Flag,
    FlagKind,
    GpuSetting,
    Measurement,
    PoolGpu,
    Status,
    Trial,
    WorkloadResult,
)
from tuner.model.uncertainty import Part, contracted, expanded, student_factor
from tuner.model.workload_name import WorkloadName

__all__ = [
    "DENSE",
    "SAME_GPU",
    "STREAM_PRIORITY",
    "AnchorRatio",
    "Buffer",
    "BufferRole",
    "BufferView",
    "Configuration",
    "DataFile",
    "DeviceIdentity",
    "DeviceLimits",
    "Energy",
    "Flag",
    "FlagKind",
    "GpuSetting",
    "InputKind",
    "InputSpec",
    "LibraryCall",
    "Measurement",
    "Operand",
    "Part",
    "Plan",
    "PoolGpu",
    "ProblemSpec",
    "PythonFunction",
    "Resources",
    "RowLayout",
    "RunStatus",
    "Scalar",
    "Source",
    "Stage",
    "StageArgument",
    "Status",
    "StructValue",
    "TensorMap",
    "Trial",
    "TunableValue",
    "Work",
    "Workload",
    "WorkloadName",
    "WorkloadResult",
    "contracted",
    "expanded",
    "non_dominated",
    "sealed",
    "shown_values",
    "stated",
    "student_factor",
    "tunable_names",
    "unsealed",
    "with_priority",
    "without_priority",
]
