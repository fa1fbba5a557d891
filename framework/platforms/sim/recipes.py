"""What the dispatcher has to know of an operator, worked out once from its schema. Imports torch."""

from dataclasses import dataclass
from typing import Any

import torch

from framework.platforms.sim.cost import Flops, flops_of

UNWRITTEN = {"empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
PURE_WRITES = {"fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
# Composite operators that a GPU runs as one kernel, or nearly so. Registered for our device, they reach the dispatcher
# whole; without that, attention would take the path that builds the whole score matrix.
FUSED = (
    "scaled_dot_product_attention",
    "linear",
    "matmul",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
)
FOLDING = {"linear", "matmul"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """`composite`: made of other operators, each of which comes back here (seen in inference mode only).
    `writes` are positions and `writes_named` names of arguments that are written; a `view` runs no kernel;
    `allocates_only` leaves memory unwritten; `reads_written` says an in-place operator needs the old values; `waits`
    says the host needs the result; `reshapes` may change the shape of a written argument, which a wrapper cannot;
    `folds` chooses its kernel by whether an operand requires grad, even where no graph is built."""

    name: str
    composite: bool
    writes: tuple[int, ...]
    writes_named: tuple[str, ...]
    view: bool
    allocates_only: bool
    reads_written: bool
    waits: bool
    reshapes: bool
    indexes: bool
    folds: bool
    flops: tuple[str, Flops] | None


def learn(func: Any) -> Recipe:
    """Read the recipe of `func`, an `OpOverload`."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    named = tuple(a.name for a in written if a.kwarg_only)
    overload = f"{name}.{schema.overload_name}" if schema.overload_name else name
    waits = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
    return Recipe(
        name=overload,
        composite=overload not in FUSED and _is_composite(func),
        writes=tuple(i for i, a in enumerate(schema.arguments) if a in written and not a.kwarg_only),
        writes_named=named,
        view=name == "_unsafe_view" or any(r.alias_info and not r.alias_info.is_write for r in schema.returns),
        allocates_only=name in UNWRITTEN,
        reads_written=bool(written) and not named and name not in PURE_WRITES,
        waits=waits and name not in INDEXING,
        reshapes=bool(named) or torch.Tag.inplace_view in func.tags,
        indexes=name in INDEXING,
        folds=name in FOLDING,
        flops=flops_of(overload),
    )


def _is_composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))
