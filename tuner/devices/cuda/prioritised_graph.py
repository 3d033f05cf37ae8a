"""Graphs whose launches keep the priorities of the streams that they were captured from."""

from tuner.devices.cuda.driver import DriverCalls
from tuner.devices.cuda.types import Graph, Stream


class PrioritisedGraph:
    """A graph that CuPy captured, made ready anew: CuPy's own runs all of it at one priority.

    Args:
        captured: the graph; kept, as its nodes hold what is launched.
        driver: makes it ready and launches it.

    Raises:
        DriverCallError: the driver cannot.
    """

    def __init__(self, captured: Graph, driver: DriverCalls) -> None:
        self._captured = captured
        self._driver = driver
        self.graph = captured.graph
        self.graphExec = driver.ready_graph(captured.graph)  # CuPy's name

    def launch(self, stream: Stream) -> None:
        """Replay into a stream."""
        self._driver.launch_graph(self.graphExec, stream.ptr)

    def upload(self, stream: Stream) -> None:
        """Bring it to the device."""
        self._driver.upload_graph(self.graphExec, stream.ptr)

    def __del__(self) -> None:
        if hasattr(self, "graphExec"):
            self._driver.destroy_graph(self.graphExec)
