"""The members of a pool: who is taken in, who is refused and why, and which of them is home."""

from collections.abc import Callable, Container, Sequence

from tuner.model.errors import PoolLostError
from tuner.model.trial import SAME_GPU
from tuner.pool.member import Member


class Crew:
    """Members of one kind, each with a GPU of its own; one of them is home.

    Args:
        tell: takes a sentence for the user.

    Attributes:
        told: the sentences so far.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._members: dict[str, Member] = {}
        self._gone: list[Member] = []
        self._refused: set[str] = set()
        self._home: Member | None = None
        self.told: list[str] = []

    @property
    def home(self) -> Member:
        """The member on which all is measured that is compared turn by turn; it may be lost just now.

        Raises:
            PoolLostError: there never was one.
        """
        if self._home is None:
            raise PoolLostError("the pool has no home")
        return self._home

    @property
    def members(self) -> Sequence[Member]:
        """Those that are there."""
        return list(self._members.values())

    @property
    def all_members(self) -> Sequence[Member]:
        """Those that have gone too."""
        return [*self._gone, *self.members]

    def clock_of(self, name: str) -> float:
        """Where the device's clock of a worker that was lost had come to, in seconds; 0 of a new name."""
        return max((member.now_s for member in self._gone if member.worker.name == name), default=0.0)

    def knows(self, address: str) -> bool:
        """True for a member, and for a worker that was refused."""
        return address in self._members or address in self._refused

    def found(self, opened: Sequence[Member], preferred: Sequence[str]) -> None:
        """Begin with the workers that have opened their setups.

        Args:
            opened: one at least.
            preferred: UUIDs of the GPUs that are to be home where they are there, the first one first.
        """
        order = {uuid: place for place, uuid in enumerate(preferred)}

        def place(member: Member) -> tuple[int, str, str]:
            return order.get(member.known.identity.uuid, len(order)), member.name, member.worker.address

        ranked = sorted(opened, key=place)
        self._home = ranked[0]
        for member in ranked:
            self._take(member)
        gpus = "1 GPU" if len(self._members) == 1 else f"{len(self._members)} GPUs"
        kind = self._home.known.identity.name
        self._say(f"pool: {gpus}, {kind}; contenders are confirmed on {self._home.name}")

    def join(self, member: Member) -> None:
        """Take in a worker that came later; it is home where it has the GPU of a home that was lost."""
        home = self.home
        is_home = member.known.identity == home.known.identity and not member.misfit(home.known)
        if is_home and home.worker.address not in self._members:
            self._home = member
        if self._take(member):
            self._say(f"pool: {member.name} has joined")

    def refuse(self, member: Member, why: str) -> None:
        """Let a worker measure no more, for a reason."""
        self._refused.add(member.worker.address)
        self._leave(member)
        self._say(f"pool: {why}")

    def leave_out(self, address: str, why: str) -> None:
        """A worker may not take part; each reason is told once."""
        sentence = f"pool: {address} is left out: {why}"
        if sentence not in self.told:
            self._say(sentence)

    def lose(self, member: Member) -> None:
        """A worker has gone."""
        if self._leave(member):
            self._say(f"pool: {member.name} is lost")

    def keep(self, present: Container[str]) -> None:
        """Those whose addresses are not present have gone."""
        for member in self.members:
            if member.worker.address not in present:
                self.lose(member)

    def _take(self, member: Member) -> bool:
        """Take a member in that has told what it is, or refuse it."""
        if member is not self._home:
            why = member.misfit(self.home.known)
            if why:
                self.refuse(member, f"{member.name} is refused: {why}")
                return False
            same = next((one for one in self.members if member.is_same_gpu(one.known)), None)
            if same is not None:
                uuid = member.known.identity.uuid
                self.refuse(member, f"{member.name} is refused: {same.name} is the same GPU ({uuid})")
                return False
        member.ratio = SAME_GPU if member is self._home else None
        self._members[member.worker.address] = member
        return True

    def _leave(self, member: Member) -> bool:
        if self._members.pop(member.worker.address, None) is None:
            return False
        self._gone.append(member)
        return True

    def _say(self, sentence: str) -> None:
        self.told.append(sentence)
        self._tell(sentence)
