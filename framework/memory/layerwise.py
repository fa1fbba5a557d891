"""From a component on the host to one that streams: split weights, decide tiers, make parcels. Imports torch."""

from collections.abc import Sequence

from torch import nn

from framework.errors import ConfigError
from framework.memory.host_store import EDIT
from framework.memory.host_table import HostTable, gather_only
from framework.memory.layers import Layer, Stack, check_coverage, find_stacks, refuse_references
from framework.memory.mover import Held, Mover
from framework.memory.ownership import Weight, collect_weights, joined, split_by_owner
from framework.memory.policy import Knobs
from framework.memory.resources import Resources
from framework.memory.stream_layers import ResidentLayer, StreamedLayer
from framework.memory.streamer import Streamer
from framework.spec import Knob, Placement

CHUNK_BYTES = 256 * 1024**2
"""A whole component travels in parcels of about this size, so that packing it needs little room of its own."""

LAYERWISE = "layerwise-offload"
WHOLE = "component-offload"


def attach_streamer(
    component: str,
    module: nn.Module,
    knobs: Knobs,
    resources: Resources,
    stacks: Sequence[Stack] | None = None,
) -> Streamer:
    """Take the weights of `module` into host parcels and hook its layers; placeholders stay in the modules.

    Raises `ConfigError` naming the component before anything has been moved. Not to be repeated before `detach`.
    """
    stacks = find_stacks(component, module, resources.layers.get(component, ())) if stacks is None else stacks
    refuse_unmovable(component, LAYERWISE, module)
    resources.store.look_at_files()
    layers = [layer for stack in stacks for layer in stack.layers]
    weights = collect_weights(component, LAYERWISE, module, [layer.module for layer in layers])
    found = gather_only(module, weights, resources.table_bytes)
    tabled = {id(weight) for weight, _ in found}
    weights = [weight for weight in weights if id(weight) not in tabled]
    own, rest = split_by_owner(weights, len(layers))
    sizes = [sum(weight.tensor.nbytes for weight in group) for group in own]
    check_coverage(component, sum(sizes), sum(weight.tensor.nbytes for weight in weights))
    tables = [_table(component, weight, readers, resources) for weight, readers in found]
    found.clear()
    streamed = knobs.streamed(_per_stack(layers, sizes))
    del weights
    permanent = knobs.lifetime == "permanent"
    built = _build_layers(component, layers, own, streamed, resources, permanent)
    return Streamer(
        component,
        module,
        resources.courier,
        resources.ring(component),
        built,
        _hold(component, rest, resources, passing=permanent and not knobs.park),
        tables,
        depth=knobs.depth,
        keep=knobs.lifetime != "use",
        park=knobs.park,
        permanent=permanent,
    )


def attach_mover(component: str, module: nn.Module, resources: Resources) -> Mover:
    """Take the weights of `module` into host parcels that move together; placeholders stay in the modules.

    Raises `ConfigError` naming component and class for what cannot be moved.
    """
    refuse_unmovable(component, WHOLE, module)
    resources.store.look_at_files()
    weights = collect_weights(component, WHOLE, module)
    return Mover(resources.courier, _hold(component, weights, resources))


def refuse_unmovable(component: str, mode: str, module: nn.Module) -> None:
    """Refuse modules that place their own weights (FSDP) or refer to them outside their parameters."""
    sharded = next((part for part in module.modules() if _is_distributed(part)), None)
    if sharded is not None:
        reason = f"{mode} cannot move a sharded module ({type(sharded).__name__})"
        raise ConfigError.of(f"component_residency.{component}", reason, hint="resident works")
    refuse_references(component, mode, module)


def is_sharded(module: nn.Module) -> bool:
    """Whether torch.distributed places the weights of `module` or of a part of it (FSDP)."""
    return any(_is_distributed(part) for part in {type(part): part for part in module.modules()}.values())


def _is_distributed(part: nn.Module) -> bool:
    return any(base.__module__.startswith("torch.distributed") for base in type(part).__mro__)


def placed_knobs(placement: Placement, stacks: Sequence[Stack], park: bool = False) -> Knobs:
    """Return the knobs of a placement in whole layers of the stacks that the module really has."""
    from framework.compose.knobs import DEFAULTS, Amount, read_amount, to_knob

    lengths = tuple(len(stack.layers) for stack in stacks)

    def layers(knob: str, said: Knob | None) -> tuple[tuple[int, ...], int | None]:
        if said is not None and said.is_per_stack and len(said.layers or ()) == len(lengths):
            return said.layers or (), None
        amount = read_amount(knob, said.written) if said is not None else DEFAULTS[knob]
        assert isinstance(amount, Amount)
        found = to_knob(knob, amount, lengths)
        return found.layers or tuple(0 for _ in lengths), found.size_bytes

    prefetch, _ = layers("prefetch", placement.prefetch)
    resident, resident_bytes = layers("resident", placement.resident)
    return Knobs(prefetch, resident, resident_bytes, placement.policy or "strided", placement.lifetime or "use", park)


def _table(component: str, weight: Weight, readers: Sequence[nn.Embedding], resources: Resources) -> HostTable:
    """Keep a table on the host, in the books of the host's memory too."""
    store, name, size = resources.store, weight.name, weight.tensor.nbytes
    store.hold_table(component, name, weight.tensor)
    table = HostTable(component, weight, readers, resources.courier)
    table.claim = lambda: store.host.require(component, name, size, EDIT)
    return table


def _build_layers(
    component: str,
    layers: Sequence[Layer],
    own: list[list[Weight]],
    streamed: frozenset[int],
    resources: Resources,
    permanent: bool,
) -> list[StreamedLayer | ResidentLayer]:
    """Make the parcels, streamed layers first: they are copied most often, so they may pin first.

    `permanent`: residents only pass through the host.
    """
    built: dict[int, StreamedLayer | ResidentLayer] = {}
    order = sorted(range(len(layers)), key=lambda index: index not in streamed)
    for index in order:
        weights, own[index] = own[index], []  # the only reference: packed weights free their memory
        if not weights:
            continue  # all it has is shared with others and stays on the device
        passing = permanent and index not in streamed
        parcel = resources.store.make_parcel(component, layers[index].name, weights, passing=passing)
        if index in streamed:
            built[index] = StreamedLayer(index, layers[index].module, parcel)
        else:
            built[index] = ResidentLayer(index, layers[index].module, Held(resources.courier, parcel))
    return [built[index] for index in sorted(built)]


def _hold(component: str, weights: list[Weight], resources: Resources, passing: bool = False) -> list[Held]:
    """Make parcels of what moves as a whole: weights in chunks, buffers apart, for they may be written to."""
    groups = joined(weights)
    weights.clear()  # from here on a weight lives in one list only, so that its memory goes when it has been packed
    changing = [weight for group in groups if _has_buffer(group) for weight in group]
    chunks = _chunks([group for group in groups if not _has_buffer(group)])
    del groups
    held = []
    for number in range(len(chunks)):
        chunk, chunks[number] = chunks[number], []
        parcel = resources.store.make_parcel(component, f"rest.{number}", chunk, passing=passing)
        held.append(Held(resources.courier, parcel))
    if changing:
        parcel = resources.store.make_parcel(component, "buffers", changing, writable=True)
        held.append(Held(resources.courier, parcel, writable=True))
    return held


def _has_buffer(group: Sequence[Weight]) -> bool:
    return any(weight.is_buffer for weight in group)


def _chunks(groups: list[list[Weight]]) -> list[list[Weight]]:
    chunks: list[list[Weight]] = []
    size = CHUNK_BYTES
    for group in groups:
        if size >= CHUNK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].extend(group)
        size += sum(weight.tensor.nbytes for weight in group)
    return chunks


def _per_stack(layers: Sequence[Layer], sizes: Sequence[int]) -> list[list[int]]:
    stacks: dict[int, list[int]] = {}
    for layer, size in zip(layers, sizes, strict=True):
        stacks.setdefault(layer.stack, []).append(size)
    return list(stacks.values())
