"""The Python client of the daemon: the standard library and a Unix socket, nothing else."""

from tuner.client.client import Client
from tuner.client.values import Best, Event, Job, LiveEvent, Use, WorkloadAnswer
from tuner.system.service_manager import default_sockets

__all__ = ["Best", "Client", "Event", "Job", "LiveEvent", "Use", "WorkloadAnswer", "default_sockets"]
