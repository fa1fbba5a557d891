"""Own, aligned copies of a module's weights. Imports torch.

Tensors that safetensors maps lie at any multiple of 4 or 8 bytes; CPU kernels then take another path and the last bits
of a result change. A fresh allocation of torch is 64-byte aligned, so a copy makes every placement compute alike.
"""

from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

ALIGNMENT_BYTES = 64


Memo: TypeAlias = dict[tuple[object, ...], Tensor]


def own_weights(module: nn.Module) -> nn.Module:
    """Give `module` copies of its weights, in eval mode and without gradients; ties stay ties.

    Parameters of a quantisation class are left as they are: only their own library knows how to copy them.
    """
    memo: Memo = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = _own_parameter(parameter, memo)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = _own_tensor(buffer, memo)
    return module.eval().requires_grad_(False)


def size_bytes(module: nn.Module) -> int:
    """Bytes of parameters and buffers as they are stored, tied ones once."""
    tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return sum(stored_bytes(tensor) for tensor in tensors.values())


def stored_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor; one made of others (a quantised weight) has theirs, whatever its dtype claims."""
    if not is_traceable_wrapper_subclass(tensor):
        return tensor.nbytes
    names, _ = tensor.__tensor_flatten__()
    return sum(stored_bytes(getattr(tensor, name)) for name in names)


def is_quantised(tensor: Tensor) -> bool:
    """Whether a weight is stored in another form than its own numbers, so that nothing can be added to it."""
    few_bits = not tensor.is_floating_point() or tensor.element_size() == 1
    return few_bits or is_traceable_wrapper_subclass(tensor) or vars(tensor).get("quant_type") is not None


def is_aligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % ALIGNMENT_BYTES == 0


def _own_parameter(parameter: nn.Parameter, memo: Memo) -> nn.Parameter:
    if type(parameter) is not nn.Parameter:
        return parameter
    owned = memo.get((id(parameter),))
    if not isinstance(owned, nn.Parameter):
        owned = nn.Parameter(_own_tensor(parameter.detach(), memo), requires_grad=False)
        memo[(id(parameter),)] = owned
    return owned


def _own_tensor(tensor: Tensor, memo: Memo) -> Tensor:
    """Copy what is misaligned or a window into a larger storage (a mapped file); remember it for ties."""
    if tensor.device.type != "cpu" or type(tensor) is not Tensor or tensor.numel() == 0:
        return tensor
    if is_aligned(tensor) and tensor.untyped_storage().nbytes() == tensor.nbytes:
        return tensor
    key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
    if key not in memo:
        memo[key] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
    return memo[key]
