"""Freed weights go back to the system."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from framework.memory.malloc import returned_when_freed

MIB = 1024**2


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def kept_bytes(context: object) -> int:
    """What stays of 128 MiB in large tensors after they died, with small ones between them that live on."""
    before = anonymous_bytes()
    with context:  # type: ignore[attr-defined]
        made = [(torch.ones(2 * MIB, dtype=torch.uint8), torch.ones(8192)) for _ in range(64)]
    small = [pair[1] for pair in made]
    made.clear()
    left = anonymous_bytes() - before
    assert small
    return left


def main() -> None:
    torch.empty(30 * MIB, dtype=torch.uint8)  # from here on glibc keeps blocks of this size
    assert kept_bytes(returned_when_freed()) < 32 * MIB
    assert kept_bytes(nullcontext()) > 64 * MIB, "else the block does nothing"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_what_was_made_in_the_block_leaves_nothing_when_it_dies() -> None:
    """In a process of its own: what an allocator keeps depends on all that was freed before."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    main()
