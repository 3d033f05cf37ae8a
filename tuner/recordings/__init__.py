"""Recorded spaces: measurements of every configuration on one GPU, for searches without it."""

from tuner.recordings.files import RecordingFile, read, write
from tuner.recordings.values import RecordedKernel, RecordedSpace, RecordedWorkload

__all__ = ["RecordedKernel", "RecordedSpace", "RecordedWorkload", "RecordingFile", "read", "write"]
