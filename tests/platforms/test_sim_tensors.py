"""`sim` as a PyTorch device: the host's numbers, the device's rules."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from framework.platforms.sim import SimCompat, SimGenerator, SimTensor, World, install
from framework.platforms.sim.platform import SimPlatform


def test_installing_again_changes_nothing_and_host_tensors_stay_plain(sim: World) -> None:
    install()
    assert type(torch.ones(2) + 1) is torch.Tensor
    assert type(F.linear(torch.ones(2, 2), torch.ones(2, 2))) is torch.Tensor
    assert sim.num_kernels == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_stack_of_layers_is_bit_equal_in_every_grad_mode(sim: World, mode: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Flatten(2), nn.Linear(36, 5)).eval()
    module.requires_grad_(False)
    x = torch.randn(2, 3, 8, 8)
    with mode():
        expected = module(x)
        out = module.to("sim")(x.to("sim"))
        assert isinstance(out, SimTensor)
        assert torch.equal(out.cpu(), expected)


def test_attention_is_one_kernel_that_never_holds_the_scores(sim: World) -> None:
    q = torch.randn(1, 2, 256, 8)
    mask = torch.randn(256, 256)
    ours = q.to("sim")
    device = sim.device(0)
    device.ledger.reset_peak()
    before, kernels = device.ledger.live_bytes, sim.num_kernels
    out = F.scaled_dot_product_attention(ours, ours, ours)
    assert sim.num_kernels == kernels + 1
    assert device.ledger.peak_bytes == before + q.numel() * 4
    assert torch.equal(out.cpu(), F.scaled_dot_product_attention(q, q, q))
    masked = F.scaled_dot_product_attention(ours, ours, ours, attn_mask=mask.to("sim"))
    assert torch.equal(masked.cpu(), F.scaled_dot_product_attention(q, q, q, attn_mask=mask))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_chooses_its_kernel_as_on_the_host(sim: World, bias: bool, mode: Callable[[], Any]) -> None:
    """PyTorch picks another matrix product when the weight requires grad, with other last bits."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 8, bias=bias)
    inputs = [torch.randn(2, 8, 256).transpose(1, 2), torch.randn(2, 3, 4, 8), torch.randn(2, 5, 8), torch.randn(5, 8)]
    square = nn.Parameter(torch.randn(8, 8))
    with mode():
        expected = [layer(x) for x in inputs]
        product = inputs[0] @ square
    layer.to("sim")
    on_sim = nn.Parameter(square.to("sim"))
    with mode():
        assert layer.weight.requires_grad
        on_device = [torch.empty_strided(x.shape, x.stride(), device="sim").copy_(x) for x in inputs]
        for x, wanted in zip(on_device, expected, strict=True):
            assert torch.equal(layer(x).cpu(), wanted)
        assert torch.equal((on_device[0] @ on_sim).cpu(), product)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a, b: a + b,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: F.linear(a, b),
        lambda a, b: a.add_(b),
        lambda a, b: F.scaled_dot_product_attention(a[None, None], b[None, None], a[None, None]),
    ],
)
def test_operands_on_two_devices_are_refused(sim: World, operation: Callable[..., Any]) -> None:
    host, ours, other = torch.ones(4, 4), torch.ones(4, 4, device="sim"), torch.ones(4, 4, device="sim:1")
    for pair in ((ours, host), (host, ours), (ours, other)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            operation(*pair)


def test_numbers_and_indices_of_the_host_are_welcome_as_on_cuda(sim: World) -> None:
    x = torch.arange(6.0).view(2, 3).to("sim")
    assert (x * torch.tensor(2.0)).cpu().tolist() == [[0, 2, 4], [6, 8, 10]]
    assert x[torch.tensor([1])].tolist() == [[3, 4, 5]]
    assert x[x > 2].tolist() == [3, 4, 5]
    with pytest.raises(RuntimeError):
        x.cpu()[torch.tensor([1], device="sim")]


def test_a_factory_may_ask_for_the_host(sim: World) -> None:
    x = torch.ones(2, device="sim")
    assert torch.zeros_like(x, device="cpu").device.type == "cpu"
    assert x.new_ones(3, device="cpu").device.type == "cpu"
    assert torch.zeros_like(torch.ones(2), device="sim").device == torch.device("sim:0")
    assert torch.empty_like(x, device="sim:1").device == torch.device("sim:1")
    assert x.to("meta").device.type == "meta"


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.arange(5, device=device),
        lambda device: torch.arange(1, 5, 2, device=device),
        lambda device: torch.arange(0.0, 1.0, 0.25, device=device),
        lambda device: torch.linspace(0, 1, 7, device=device),
        lambda device: torch.eye(3, device=device),
        lambda device: torch.eye(3, 4, device=device),
        lambda device: torch.tensor([[1, 2], [3, 4]], device=device),
        lambda device: torch.full((2, 2), 3.5, device=device),
        lambda device: torch.tril_indices(3, 3, device=device),
        lambda device: torch.scalar_tensor(2.0, device=device),
    ],
)
def test_factories_make_the_host_numbers(sim: World, make: Callable[[str], torch.Tensor]) -> None:
    ours, host = make("sim"), make("cpu")
    assert ours.shape == host.shape
    assert ours.dtype == host.dtype
    assert torch.equal(ours.cpu(), host)


def test_a_generator_of_the_host_or_of_the_device_draws_the_same_numbers(sim: World, platform: SimPlatform) -> None:
    expected = torch.randn(5, generator=torch.Generator().manual_seed(3))
    ours = platform.make_generator(3)
    assert isinstance(ours, SimGenerator)
    assert ours.device == torch.device("sim:0")
    assert torch.equal(torch.randn(5, generator=ours, device="sim").cpu(), expected)
    host = torch.Generator().manual_seed(3)
    assert torch.equal(torch.randn(5, generator=host, device="sim").cpu(), expected)


def test_views_share_memory_and_writes_through_them_show(sim: World) -> None:
    x = torch.zeros(4, 4, device="sim")
    live = sim.device(0).ledger.live_bytes
    x[1:3].copy_(torch.ones(2, 4, device="sim"))
    x.view(-1)[:2] += 5
    assert x.cpu().sum() == 18
    assert sim.device(0).ledger.live_bytes == live


def test_a_view_runs_no_kernel_and_a_reshape_at_most_one(sim: World) -> None:
    x = torch.ones(4, 6, device="sim")
    kernels = sim.num_kernels
    x.t()[1:].unsqueeze(0).expand(2, 5, 4).view(torch.int32)
    assert sim.num_kernels == kernels
    x.t().reshape(-1)
    assert sim.num_kernels == kernels + 1


def test_a_view_of_an_ordinary_tensor_is_ordinary_in_inference_mode(sim: World) -> None:
    x = torch.ones(4, device="sim")
    with torch.inference_mode():
        part = x[:2]
        assert not part.is_inference()
        assert (x + 1).is_inference()
    assert part.add_(1).tolist() == [2, 2]


def test_memory_may_be_seen_as_another_dtype(sim: World, platform: SimPlatform) -> None:
    arena = platform.reserve(4096)
    weight = arena[512:544].view(torch.float32).view(2, 4)
    weight.copy_(torch.arange(8.0).view(2, 4))
    assert weight.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert arena[512:544].cpu().view(torch.float32).tolist() == list(range(8))


def test_in_place_changes_count_as_versions(sim: World) -> None:
    x = torch.zeros(3, device="sim")
    before = x._version
    x.add_(1)
    assert x._version > before


def test_parameters_survive_moving_copying_and_wrapping(sim: World) -> None:
    layer = nn.Linear(2, 2).to("sim")
    assert isinstance(layer.weight, nn.Parameter)
    twin = copy.deepcopy(layer)
    assert isinstance(twin.weight, nn.Parameter)
    assert torch.equal(twin.weight.cpu(), layer.weight.cpu())
    assert twin.weight.data_ptr() != layer.weight.data_ptr()
    layer.to("cpu")
    assert type(layer.weight) is nn.Parameter


def test_a_module_changes_dtype_on_the_device(sim: World) -> None:
    layer = nn.Linear(2, 2).to("sim").half()
    assert layer.weight.dtype == torch.float16
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.device.type == "sim"


def test_tied_parameters_stay_tied_in_compat_mode(sim: World) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    expected = module(torch.ones(1, 2)).detach()
    with SimCompat():
        module.to("sim")
    assert module[1].weight is module[0].weight
    with torch.no_grad():
        assert torch.equal(module(torch.ones(1, 2, device="sim")).cpu(), expected)
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_data_can_be_assigned_between_host_and_device(sim: World) -> None:
    weight = nn.Parameter(torch.ones(3), requires_grad=False)
    with SimCompat():
        weight.data = torch.full((3,), 2.0, device="sim")
        assert isinstance(weight, nn.Parameter)
        assert weight.device.type == "sim"
        assert weight.tolist() == [2.0] * 3
        weight.data = torch.full((3,), 4.0)
    assert type(weight) is nn.Parameter
    assert weight.tolist() == [4.0] * 3


def test_a_tensor_cannot_be_resized_in_place(sim: World) -> None:
    x = torch.zeros(4, device="sim")
    for change in (
        lambda: x.resize_(8),
        lambda: x.unsqueeze_(0),
        lambda: torch.add(x, 1, out=torch.empty(0, device="sim")),
    ):
        with pytest.raises(RuntimeError, match="simulated tensor"):
            change()


def test_a_result_may_be_written_to_a_tensor_of_its_shape(sim: World) -> None:
    x, out = torch.ones(4, device="sim"), torch.empty(4, device="sim")
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [2, 2, 2, 2]


def test_another_tensor_class_decides_for_itself(sim: World) -> None:
    class Absent(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise LookupError("absent")

    absent = torch.Tensor._make_wrapper_subclass(Absent, (2,), device=torch.device("sim", 0))
    x = torch.ones(2, device="sim")
    for use in (lambda: x + absent, lambda: absent + x, lambda: x.copy_(absent)):
        with pytest.raises(LookupError, match="absent"):
            use()


def test_a_tensor_made_of_a_tensor_reads_it(sim: World) -> None:
    """SDXL's inpainting does it with each timestep; PyTorch asks for the number past the dispatcher."""
    assert torch.tensor([torch.tensor(3.5).to("sim")]).tolist() == [3.5]
