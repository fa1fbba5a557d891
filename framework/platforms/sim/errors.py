"""What the simulated accelerator raises. Imports torch."""

import torch


class SimRace(RuntimeError):
    """Two uses of the same bytes that nothing orders, or a read of bytes that have been given up."""


class SimOOM(torch.OutOfMemoryError):
    """The simulated device is full; the message gives what was asked, held and possible, in bytes."""


class SimFault(RuntimeError):
    """A failure planted by a test."""
