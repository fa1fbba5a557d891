"""Deterministic kernels for the time of a run, and the environment that they need. Imports torch inside a function."""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from framework.errors import ConfigError

KEY = "numerics.deterministic"
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""The sizes with which cuBLAS always sums in one order; it reads them when it is first used."""


def prepare_environment(deterministic: bool, environment: MutableMapping[str, str] = os.environ) -> bool:
    """Say to cuBLAS that its sums are to keep one order; best before torch is imported. Return whether it was said now.

    Raises `ConfigError` where the environment says something else.
    """
    if not deterministic:
        return False
    is_new = WORKSPACE not in environment
    said = environment.setdefault(WORKSPACE, WORKSPACES[0])
    if said not in WORKSPACES:
        reason = f"the environment has {WORKSPACE}={said}, with which cuBLAS may sum in any order"
        raise ConfigError.of(KEY, reason, hint=f"unset it, or set {' or '.join(WORKSPACES)}")
    return is_new


@contextmanager
def prepared_environment(deterministic: bool) -> Iterator[None]:
    """The same for the time of a block, which may make a device."""
    is_new = prepare_environment(deterministic)
    try:
        yield
    finally:
        if is_new:
            del os.environ[WORKSPACE]


@contextmanager
def deterministic_kernels(deterministic: bool) -> Iterator[None]:
    """Let torch refuse every kernel whose result may differ from run to run; put everything back after the block.

    A kernel without such a variant raises inside the block, naming itself.
    """
    import torch

    if not deterministic:
        yield
        return
    enabled = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark)
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=only_warns)
        cudnn.deterministic, cudnn.benchmark = before
