"""What others offer for the catalogue's operations: CUB, cuSPARSE, cuFFT, torch and CuPy, ready to time."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from answers import Data
from cub_peers import CubPeers
from cufft_peers import CufftPeers
from cusparse_peers import CusparsePeers
from peer import Peer


class Libraries:
    """The libraries found on this machine; ``missing`` says which were not, and which forms were refused."""

    def __init__(self, cp: Any, scans: Sequence[int], cccl: Path | None, cub_build: Path | None) -> None:
        self.cp = cp
        self.missing: dict[str, str] = {}
        self.torch: Any = None
        try:
            import torch  # noqa: PLC0415 - a peer, not a dependency

            self.torch = torch
        except ImportError as error:
            self.missing["torch"] = str(error)
        self.cub: CubPeers | None = None
        try:
            folder = cub_build or Path(tempfile.mkdtemp(prefix="cub-peers-"))
            self.cub = CubPeers(cp, scans, cccl, folder)
        except (OSError, subprocess.CalledProcessError) as error:
            self.missing["CUB"] = f"{error}: nvcc is needed"
        self.cusparse, self.cufft = CusparsePeers(cp), CufftPeers(cp)

    def versions(self) -> dict[str, str]:
        """Of the libraries."""
        found = {"cuFFT": str(self.cufft.version), "cuSPARSE": str(self.cusparse.version)}
        if self.cub is not None:
            found["CUB"] = str(self.cub.version)
        if self.torch is not None:
            found["torch"] = str(self.torch.__version__)
        return found

    def peers(self, data: Data) -> list[Peer]:
        """Every form of everything that solves the problem."""
        if data.family == "scan":
            return self._scan(data)
        if data.family == "fft":
            return self._fft(data)
        peers = self.cusparse.peers(data)
        self.missing |= self.cusparse.failed
        return peers

    def _scan(self, data: Data) -> list[Peer]:
        cp, (x,), y = self.cp, data.inputs, data.output
        peers = [Peer("cupy.cumsum", "", lambda: _ignore(cp.cumsum(x, axis=1, out=y)), lambda: y)]
        if self.torch is not None:
            torch, tx, ty = self.torch, self.torch.from_dlpack(x), self.torch.from_dlpack(y)
            peers.append(Peer("torch.cumsum", "", lambda: _ignore(torch.cumsum(tx, 1, out=ty)), lambda: y))
        return peers + (self.cub.peers(data) if self.cub is not None else [])

    def _fft(self, data: Data) -> list[Peer]:
        peers = self.cufft.peers(data)
        self.missing |= self.cufft.failed
        if self.torch is not None:
            torch, cp, tx, ty = self.torch, self.cp, *map(self.torch.from_dlpack, (*data.inputs, data.output))
            peers.append(
                Peer("torch.fft", "out=", lambda: _ignore(torch.fft.fft(tx, out=ty)), lambda: data.output)
            )
            held: list[Any] = []

            def fresh() -> None:
                held[:] = [torch.fft.fft(tx)]

            peers.append(Peer("torch.fft", "new array", fresh, lambda: cp.from_dlpack(held[0])))
        return peers


def _ignore(_: object) -> None:
    """The result lies in the output already."""
