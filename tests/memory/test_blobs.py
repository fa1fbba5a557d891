"""Layout of a layer's bytes: alignment, dtypes, strides, ties, and parameter classes."""

from collections.abc import Callable

import memory_builders as build
import pytest
import torch
from torch import Tensor, nn

from framework.errors import ConfigError
from framework.memory.blobs import ALIGNMENT_BYTES, fill, lay_out
from framework.memory.host_store import HostStore
from framework.memory.layerwise import attach_mover
from framework.memory.ownership import collect_weights
from framework.memory.parcel import Parcel, install
from framework.memory.resources import Resources

Make = Callable[..., Resources]


def parcel(module: nn.Module, store: HostStore | None = None) -> Parcel:
    store = store or build.resources(device="cpu").store
    return store.make_parcel("c", "layer", collect_weights("c", "layerwise-offload", module))


def device_copy(packed: Parcel) -> Tensor:
    """The blob's bytes somewhere else."""
    memory = torch.zeros(packed.size_bytes, dtype=torch.uint8)
    for source in packed.blob.sources:
        memory.narrow(0, source.offset_bytes, source.data.numel()).copy_(source.data)
    return memory


class Holder(nn.Module):
    """A module with the given parameters."""

    def __init__(self, **parameters: Tensor) -> None:
        super().__init__()
        for name, tensor in parameters.items():
            given = isinstance(tensor, nn.Parameter)
            self.register_parameter(name, tensor if given else nn.Parameter(tensor, requires_grad=False))


def parameters(**tensors: Tensor) -> nn.Module:
    return Holder(**tensors)


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.bool, torch.int64]
DTYPES += [torch.complex64, torch.float8_e4m3fn]


def test_mixed_dtypes_come_back_bit_by_bit_at_aligned_addresses() -> None:
    tensors = {f"t{i}": (torch.rand(3, 5) * 9).to(dtype) for i, dtype in enumerate(DTYPES)}
    module = parameters(**tensors)
    packed = parcel(module)
    memory = device_copy(packed)
    install(packed.bind(memory))
    for name, before in tensors.items():
        after = module._parameters[name]
        assert after is not None
        assert after.dtype == before.dtype
        assert torch.equal(after.view(torch.uint8) if after.dtype != torch.bool else after, _bytes(before, after))
        assert (after.data_ptr() - memory.data_ptr()) % ALIGNMENT_BYTES == 0


def _bytes(before: Tensor, after: Tensor) -> Tensor:
    return before.view(torch.uint8) if after.dtype != torch.bool else before


STRIDED = {
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).T,
    "channels last": lambda: torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "every other column": lambda: torch.arange(12.0).reshape(3, 4)[:, ::2],
    "expanded": lambda: torch.arange(3.0)[:, None].expand(3, 4),
    "window of a large storage": lambda: torch.arange(100.0)[40:52].reshape(3, 4),
    "empty": lambda: torch.empty(0, 4),
    "scalar": lambda: torch.tensor(3.0),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_survive(name: str) -> None:
    before = STRIDED[name]()
    module = parameters(before=before, other=torch.ones(2))
    packed = parcel(module)
    install(packed.bind(device_copy(packed)))
    after = module.before
    assert isinstance(after, Tensor)
    assert (after.shape, after.stride()) == (before.shape, before.stride())
    assert torch.equal(after, before)


def test_a_window_of_a_large_storage_costs_only_its_own_bytes() -> None:
    assert parcel(parameters(a=torch.arange(1e6)[:4])).size_bytes == ALIGNMENT_BYTES


def test_one_tensor_under_two_names_stays_one() -> None:
    """OC-05."""
    module = nn.Module()
    module.emb = nn.Embedding(6, 4)
    module.head = nn.Linear(4, 6, bias=False)
    module.head.weight = module.emb.weight
    module.requires_grad_(False)
    packed = parcel(module)
    assert packed.size_bytes == 6 * 4 * 4 + 160
    install(packed.bind(device_copy(packed)))
    assert module.head.weight is module.emb.weight
    module.head.weight[0] = 7
    assert bool((module.emb.weight[0] == 7).all())


def test_parameters_over_one_storage_stay_there() -> None:
    """OC-05: q, k and v cut from one fused weight, and the weight itself."""
    fused = torch.rand(6, 4)
    module = parameters(q=fused[:2], k=fused[2:4], v=fused[4:])
    packed = parcel(module)
    assert packed.size_bytes == ALIGNMENT_BYTES
    install(packed.bind(device_copy(packed)))
    q, k, v = module.q, module.k, module.v
    assert isinstance(q, Tensor)
    assert isinstance(k, Tensor)
    assert k.data_ptr() - q.data_ptr() == 2 * 4 * 4
    assert torch.equal(torch.cat([q, k, v]), fused)


def test_overlapping_parameters_share_their_bytes() -> None:
    base = torch.rand(8, 4)
    module = parameters(whole=base[:6], part=base[4:])
    packed = parcel(module)
    install(packed.bind(device_copy(packed)))
    whole, part = module.whole, module.part
    assert isinstance(whole, Tensor)
    whole[5] = 9
    assert isinstance(part, Tensor)
    assert bool((part[1] == 9).all())


def test_packing_copies_nothing_that_need_not_be_copied() -> None:
    weight = torch.rand(4, 4)
    packed = parcel(parameters(w=weight))
    assert packed.blob.tier == "pageable"
    assert packed.blob.sources[0].data.data_ptr() == weight.data_ptr()


def test_the_host_master_can_be_read_and_written_through_its_views() -> None:
    module = parameters(w=torch.zeros(4, 4))
    packed = parcel(module)
    packed.host_view(packed.entries[0].pieces[0]).fill_(2)
    install(packed.bind(device_copy(packed)))
    assert bool((module.w == 2).all())


class Quantised(nn.Parameter):
    """As GGUF's: a constructor that needs more than data, and an attribute that carries the format (OC-10)."""

    def __new__(cls, data: Tensor, quant_type: str) -> "Quantised":
        self: Quantised = Tensor._make_subclass(cls, data, False)
        self.quant_type = quant_type
        return self

    def __init__(self, data: Tensor, quant_type: str) -> None:
        """All is done in `__new__`."""


class Dequantise(nn.Module):
    """A linear layer that needs the format of its weight."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.weight = Quantised(torch.arange(16, dtype=torch.int8).reshape(4, 4) * scale, f"q{scale}")

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.weight, Quantised)
        return x @ self.weight.to(torch.float32).T / int(self.weight.quant_type[1:])


@pytest.mark.parametrize("mode", ["component", "layerwise"])
def test_a_quantised_parameter_keeps_class_and_attributes(make_resources: Make, mode: str) -> None:
    """OC-10."""
    model = nn.Sequential(nn.ModuleList([Dequantise(2), Dequantise(3)]), nn.Linear(4, 4)).requires_grad_(False)
    layers, x = model[0], torch.ones(2, 4)
    expected = layers[1](layers[0](x))
    if mode == "component":
        mover = attach_mover("transformer", model, make_resources())
        begin, end = (mover.start, mover.install), mover.drop
    else:
        stacks = build.find_stacks("transformer", model, ["0"])
        streamer = build.attach_streamer("transformer", model, build.Knobs((1,), (0,)), make_resources(), stacks)
        begin, end = (streamer.start, streamer.wait), streamer.release_all
    for _ in range(2):
        for step in begin:
            step()
        assert torch.equal(layers[1](layers[0](x.to("sim"))).cpu(), expected)
        end()
        assert layers[0].weight.quant_type == "q2"


def test_a_plain_attribute_on_a_plain_parameter_survives() -> None:
    module = parameters(w=torch.ones(2))
    module.w.tensor_model_parallel = True
    packed = parcel(module)
    assert module.w.tensor_model_parallel
    install(packed.bind(device_copy(packed)))
    assert module.w.tensor_model_parallel


class HoldsTensor(nn.Parameter):
    """As bitsandbytes': a state object with tensors of its own."""


def test_a_class_that_keeps_tensors_beside_its_data_is_refused_by_name(make_resources: Make) -> None:
    weight = HoldsTensor(torch.ones(2), requires_grad=False)
    weight.absmax = torch.ones(1)
    with pytest.raises(ConfigError, match=r"dit: component-offload cannot move 'w': HoldsTensor keeps .* 'absmax'"):
        attach_mover("dit", parameters(w=weight), make_resources())


def test_a_weight_without_data_is_refused_by_name(make_resources: Make) -> None:
    with pytest.raises(ConfigError, match=r"cannot move 'weight': it lies on the meta device"):
        attach_mover("vae", nn.Linear(2, 2, device="meta"), make_resources())


class TwoPart(Tensor):
    """A wrapper subclass as torchao's: data and scale as inner tensors."""

    @staticmethod
    def __new__(cls, data: Tensor, scale: Tensor) -> "TwoPart":
        return Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32, device=data.device)

    def __init__(self, data: Tensor, scale: Tensor) -> None:
        self.inner, self.scale = data, scale

    def __tensor_flatten__(self) -> tuple[list[str], int]:
        return ["inner", "scale"], 7

    @classmethod
    def __tensor_unflatten__(cls, parts: dict[str, Tensor], context: int, size: object, stride: object) -> "TwoPart":
        assert context == 7
        return cls(parts["inner"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner, args[0].scale)
        raise NotImplementedError(func)


def test_a_wrapper_of_several_tensors_is_rebuilt_from_them() -> None:
    wrapped = TwoPart(torch.arange(6, dtype=torch.int8).reshape(2, 3), torch.tensor([0.5, 2.0]))
    module = parameters(w=nn.Parameter(wrapped, requires_grad=False), bias=torch.ones(2))
    packed = parcel(module)
    assert packed.size_bytes == 3 * ALIGNMENT_BYTES
    install(packed.bind(device_copy(packed)))
    after = module.w
    assert isinstance(after, TwoPart)
    assert isinstance(after, nn.Parameter)
    assert torch.equal(after.inner, wrapped.inner)
    assert torch.equal(after.scale, wrapped.scale)


def test_filling_memory_copies_every_byte_once() -> None:
    module = parameters(a=torch.rand(3, 3), b=torch.rand(5).to(torch.float16))
    layout = lay_out(collect_weights("c", "m", module))
    assert layout.size_bytes == 2 * ALIGNMENT_BYTES
    blob = fill(layout, torch.zeros(layout.size_bytes, dtype=torch.uint8), "pageable")
    assert blob.memory is not None
    assert torch.equal(layout.pieces[0][0].view(blob.memory), module.a)
