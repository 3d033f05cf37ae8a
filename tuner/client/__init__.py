"""The Python client of the daemon: the standard library and a Unix socket, nothing else."""

from tuner.client.answer_values import Use
from tuner.client.client import Client
from tuner.model.jobs import Event, Job
from tuner.model.run_document import Best, WorkloadAnswer
from tuner.system.service_manager import default_sockets

__all__ = ["Best", "Client", "Event", "Job", "Use", "WorkloadAnswer", "default_sockets"]
