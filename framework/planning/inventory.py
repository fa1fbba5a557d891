"""How large every component is and how its layers pack, before anything is read. No torch.

From safetensors headers where the checkpoint is at hand (folder, hub cache, ranged reads from the hub), else from the
shipped sheet. What nobody knows is marked unknown: never zero, never "too big".
"""

from collections.abc import Iterable, Mapping, Sequence

from framework.memory.layer_table import layer_paths
from framework.planning.class_facts import ClassFacts, class_facts, is_known
from framework.planning.facts import ComponentSizes
from framework.planning.gguf_file import is_packed
from framework.planning.owners import StackNames, Weight, find_stack, pack
from framework.planning.quantized import NOTE, quantized_weights
from framework.planning.stored import Stored, find_stored
from framework.planning.tensors import Tensor, main_dtype
from framework.quantization import Quantization
from framework.spec import EMPTY, ComponentSpec, PipelineSpec

FULL = "float32"


def inventory(
    pipeline: PipelineSpec,
    used: frozenset[str],
    *,
    connect: bool = True,
    quantized: Mapping[str, Quantization] = EMPTY,
) -> dict[str, ComponentSizes]:
    """Return the sizes of the components in `used`, at the dtypes they are loaded in and in the bits of `quantized`.

    An optional component that the checkpoint leaves out is not in it. `connect=False` asks nobody over the network;
    otherwise a hub's checkpoint that is not here has its headers read, unless `HF_HUB_OFFLINE` is set.
    """
    stored = find_stored(pipeline, sorted(used), connect=connect)
    components = {name: pipeline.components.get(name) or ComponentSpec(name=name) for name in stored}
    return {
        name: component_sizes(components[name], stored[name], pipeline.model.dtype, quantized.get(name))
        for name in stored
    }


def component_sizes(
    component: ComponentSpec,
    stored: Stored,
    model_dtype: str | None = None,
    quantization: Quantization | None = None,
) -> ComponentSizes:
    """Return the sizes of one component from what is known of its files.

    The dtype is the component's, else the model's, else the one most bytes of the checkpoint have.
    """
    dtype = component.dtype or model_dtype or main_dtype(stored.tensors)
    if not stored.tensors or dtype is None:
        return _unknown(component, stored, dtype)
    facts = class_facts(stored.class_name or "")
    weights = list(module_weights(stored, facts, dtype))
    if quantization is not None:
        weights = list(quantized_weights(weights, quantization, stored.class_name, facts))
    names = [name for weight in weights if not weight.is_buffer for name in weight.names]
    stacks, missing = _stacks(component, stored.class_name, names)
    packed = pack(weights, stacks)
    return ComponentSizes(
        name=component.name,
        group=component.group,
        class_name=stored.class_name,
        dtype=dtype if quantization is None else quantization.method.name,
        file_dtype=main_dtype(stored.tensors),
        size_bytes=packed.size_bytes,
        stacks=packed.stacks,
        leftover_bytes=packed.leftover_bytes,
        leftover_tensors=packed.leftover_tensors,
        table_bytes=packed.table_bytes,
        buffer_bytes=packed.buffer_bytes,
        resident_bytes=packed.resident_bytes,
        whole_bytes=packed.whole_bytes,
        file_bytes=stored.file_bytes,
        config=stored.config,
        ties=facts.tied(stored.config),
        source=stored.source,
        notes=(*stored.notes, *missing, *_about_class(stored.class_name), *((NOTE,) if quantization else ())),
    )


def module_weights(stored: Stored, facts: ClassFacts, dtype: str) -> Iterable[Weight]:
    """Yield the tensors of the loaded module in its order, ties once: the stored ones, then buffers made with it."""
    twin = dict(facts.tied(stored.config))
    twin |= {second: first for first, second in twin.items()}
    seen: set[str] = set()
    for tensor in stored.tensors:
        name = facts.module_name(tensor.name)
        if name in seen or (name.endswith("position_ids") and not tensor.floating):
            continue  # old files keep position ids that the module makes itself
        names = (name, twin[name]) if name in twin else (name,)
        seen.update(names)
        loaded = tensor.renamed(name)
        own = facts.dtype_of(loaded, dtype)
        if is_packed(loaded) and own == FULL:
            loaded = Tensor(name, loaded.shape, FULL)  # unpacked while loading
        gathered = all(one in facts.tables for one in names)
        yield Weight(loaded.cast(own), names, facts.is_buffer(name), gathered)
    for made in facts.made(stored.config, dtype):
        yield Weight(made, (made.name,), is_buffer=True)


def _stacks(
    component: ComponentSpec, class_name: str | None, names: Sequence[str]
) -> tuple[list[StackNames], tuple[str, ...]]:
    """The block lists of the YAML, else those known for the class; and a note for what the weights do not have."""
    paths = component.layers or layer_paths(class_name or "")
    found = [(path, find_stack(path, names)) for path in paths]
    missing = tuple(f"no weights of its layers '{path}' were found" for path, stack in found if stack is None)
    return [stack for _, stack in found if stack is not None], missing


def _unknown(component: ComponentSpec, stored: Stored, dtype: str | None) -> ComponentSizes:
    """Nothing but the size of the files may be known; that of the weights then stays open."""
    return ComponentSizes(
        name=component.name,
        group=component.group,
        class_name=stored.class_name,
        dtype=dtype,
        file_dtype=None,
        size_bytes=None,
        file_bytes=stored.file_bytes,
        config=stored.config,
        source=stored.source,
        notes=stored.notes or ("nothing is known of its weights",),
    )


def _about_class(class_name: str | None) -> tuple[str, ...]:
    if class_name is None or is_known(class_name):
        return ()
    return (f"{class_name} is no class that was looked at: ties and buffers outside its file are not counted",)
