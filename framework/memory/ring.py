"""Device memory for streamed layers: equal slots, reserved for a use and handed round inside it. Imports torch.

Several components may share one ring (Wan's two experts): it is reserved with the first use and given up with the last.
"""

from collections.abc import Callable, Collection
from itertools import count

from torch import Tensor

from framework.errors import StageError
from framework.memory.courier import Courier, Delivery
from framework.platforms.protocol import EventHandle


class Slot:
    """One piece of the ring. `done` is the event of the last compute that read it; `ready` of the last copy into it."""

    __slots__ = ("busy", "delivery", "done", "evict", "index", "memory", "occupant", "owner", "ready", "version")

    def __init__(self, index: int, memory: Tensor) -> None:
        self.index, self.memory = index, memory
        self.done: EventHandle | None = None
        self.ready: EventHandle | None = None
        self.delivery: Delivery | None = None  # the copy into it that has not been completed
        self.owner: object | None = None  # whose layer is in it, and the number of that layer
        self.occupant = -1
        self.evict: Callable[[], None] | None = None
        self.busy = False  # its layer is in a call
        self.version = 0


class Ring:
    """`num_slots` slots of `slot_bytes`, the largest wish of all who share it."""

    def __init__(self, courier: Courier) -> None:
        self.courier = courier
        self.slots: list[Slot] = []
        self._wishes: dict[object, tuple[int, int]] = {}  # bytes of a slot and number of slots, by user
        self.hungry: dict[object, Callable[[], None]] = {}
        """Users that have begun beside another and load their first layers as soon as a slot is free."""
        self._free: list[Slot] = []
        self._users: dict[object, Callable[[], None]] = {}
        self._numbers = count()

    @property
    def slot_bytes(self) -> int:
        return max((size for size, _ in self._wishes.values()), default=0)

    @property
    def num_slots(self) -> int:
        return max((number for _, number in self._wishes.values()), default=0)

    @property
    def size_bytes(self) -> int:
        """Device bytes while the ring is open; it does not shrink until its last user has closed it."""
        return max(self.slot_bytes * self.num_slots, sum(slot.memory.numel() for slot in self.slots))

    def fit(self, user: object, slot_bytes: int, num_slots: int) -> None:
        """Ask for at least this much for `user`; it is reserved with the next `open`."""
        self._wishes[user] = slot_bytes, num_slots

    def leave(self, user: object) -> None:
        """Forget what `user` has asked for; it has closed the ring."""
        self._wishes.pop(user, None)

    def open(self, user: object, forget: Callable[[], None]) -> None:
        """Reserve the slots unless another user has; `forget` drops what the user keeps of them.

        Raises the platform's out-of-memory error, with nothing reserved.
        """
        if not self._users or self.must_grow():
            self._reserve()
        self._users[user] = forget

    def must_grow(self) -> bool:
        """Whether it is open and too small for what has been asked since."""
        large_enough = len(self.slots) >= self.num_slots and all(
            slot.memory.numel() >= self.slot_bytes for slot in self.slots
        )
        return bool(self._users) and not large_enough

    def _reserve(self) -> None:
        if self.slots:
            self.courier.let_compute_follow()
        for slot in self.slots:
            if slot.busy:
                raise StageError("a ring cannot grow while a layer in it is being called")
            if slot.evict is not None:
                slot.evict()
        for forget in self._users.values():
            forget()
        self.slots, self._free = [], []
        self.slots = [Slot(next(self._numbers), self.courier.reserve(self.slot_bytes)) for _ in range(self.num_slots)]
        self._free = self.slots[::-1]

    def close(self, user: object) -> None:
        """Give the slots up with their last user; the caller has emptied its own."""
        self._users.pop(user, None)
        self.hungry.pop(user, None)
        if not self._users:
            self.slots, self._free = [], []
        else:
            self.feed()

    def shared(self, user: object) -> bool:
        """Whether someone beside `user` has it open."""
        return any(other is not user for other in self._users)

    def take(self) -> Slot | None:
        """Return a free slot, if there is one."""
        return self._free.pop() if self._free else None

    def take_back(self, owner: object | None, wanted: Collection[int]) -> Slot | None:
        """Empty a slot that was loaded ahead and return it: one of `owner` (None: of anybody) not among `wanted`."""
        for slot in self.slots:
            mine = owner is None or slot.owner is owner
            if mine and slot.evict is not None and not slot.busy and slot.occupant not in wanted:
                slot.evict()
                return self._free.pop()
        return None

    def give_back(self, slot: Slot) -> None:
        """The slot's contents are not needed any more."""
        if slot.delivery is not None:
            self.courier.cancel(slot.delivery)
        slot.owner = slot.evict = slot.delivery = None
        slot.occupant, slot.busy = -1, False
        self.courier.platform.retire(slot.memory)
        self._free.append(slot)

    def feed(self) -> None:
        """Let those who wait load into free slots."""
        for load in list(self.hungry.values()):
            load()
