"""Which of a module's tensors belong to which layer, and what that makes in device bytes by mode. No torch.

The rules are those of `memory.ownership` (who owns a tied weight) and `memory.host_table` (tables), the arithmetic is
`planning.packing`; the tests hold both to the engine, to the byte.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from framework.planning.facts import LayerSize, StackSizes
from framework.planning.packing import layer_bytes, resident_bytes, whole_bytes
from framework.planning.tensors import Tensor

TABLE_BYTES = 256 * 1024**2  # from here on a gather-only table stays on the host
REST = -1


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor of a module at the run's dtype, with all its names; `gathered`: nothing but embeddings reads it."""

    tensor: Tensor
    names: tuple[str, ...]
    is_buffer: bool = False
    gathered: bool = False

    @property
    def size_bytes(self) -> int:
        return self.tensor.size_bytes


@dataclass(frozen=True, slots=True)
class StackNames:
    """One block list found among the names: the prefixes of its layers, in order, each ending in a dot."""

    path: str
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Bytes of one component, fields as in `facts.ComponentSizes`."""

    stacks: tuple[StackSizes, ...]
    leftover_bytes: int
    leftover_tensors: int
    table_bytes: int
    buffer_bytes: int
    resident_bytes: int
    whole_bytes: int
    size_bytes: int


def find_stack(path: str, names: Sequence[str]) -> StackNames | None:
    """Find a block list, or a single block, among the names of a module's weights; `a|b` are alternatives."""
    for choice in path.split("|"):
        head = f"{choice}."
        children = [name[len(head) :].partition(".")[0] for name in names if name.startswith(head)]
        if not children:
            continue
        if not all(child.isdecimal() for child in children):
            return StackNames(choice, (head,))
        return StackNames(choice, tuple(f"{head}{i}." for i in range(max(int(child) for child in children) + 1)))
    return None


def pack(weights: Sequence[Weight], stacks: Sequence[StackNames]) -> Packed:
    """Return the bytes of a component whose weights come in module order."""
    layers: list[list[Weight]] = [[] for stack in stacks for _ in stack.prefixes]
    owner_of = _owners(stacks)
    rest, tables, buffers = [], [], []
    for weight in weights:
        owner = REST if weight.is_buffer else owner_of(weight)
        if weight.is_buffer:
            buffers.append(weight)
        elif owner != REST:
            layers[owner].append(weight)
        elif stacks and weight.gathered and weight.size_bytes >= TABLE_BYTES:
            tables.append(weight)
        else:
            rest.append(weight)
    sized = iter([_layer(layer) for layer in layers])
    return Packed(
        stacks=tuple(StackSizes(stack.path, tuple(next(sized) for _ in stack.prefixes)) for stack in stacks),
        leftover_bytes=whole_bytes(_sizes(rest)),
        leftover_tensors=len(rest),
        table_bytes=sum(_sizes(tables)),
        buffer_bytes=whole_bytes((), _sizes(buffers)),
        resident_bytes=resident_bytes(_sizes(weights)),
        whole_bytes=whole_bytes(_sizes([w for w in weights if not w.is_buffer]), _sizes(buffers)),
        size_bytes=sum(_sizes(weights)),
    )


def _owners(stacks: Sequence[StackNames]) -> Callable[[Weight], int]:
    by_prefix = {prefix: number for number, prefix in enumerate(p for stack in stacks for p in stack.prefixes)}
    depths = sorted({prefix.count(".") for prefix in by_prefix})

    def owner(weight: Weight) -> int:
        found = {_owner_of_name(name, by_prefix, depths) for name in weight.names}
        return found.pop() if len(found) == 1 else REST

    return owner


def _owner_of_name(name: str, by_prefix: dict[str, int], depths: Sequence[int]) -> int:
    parts = name.split(".")
    for depth in depths:
        number = by_prefix.get(".".join(parts[:depth]) + ".")
        if number is not None:
            return number
    return REST


def _layer(weights: Sequence[Weight]) -> LayerSize:
    by_dtype: Counter[str] = Counter()
    for weight in weights:
        by_dtype[weight.tensor.dtype] += weight.size_bytes
    return LayerSize(layer_bytes(_sizes(weights)), len(weights), dict(by_dtype))


def _sizes(weights: Sequence[Weight]) -> list[int]:
    return [weight.size_bytes for weight in weights]
