"""A simulated accelerator: a real PyTorch device named `sim` on a machine without one. Imports torch.

It keeps separate memory with a capacity, finds races between streams, and tells virtual time from a hardware profile.
"""

from framework.platforms.sim.backend import install
from framework.platforms.sim.compat import SimCompat
from framework.platforms.sim.errors import SimFault, SimOOM, SimRace
from framework.platforms.sim.generator import SimGenerator
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.streams import Event, Stream
from framework.platforms.sim.tensor import SimTensor
from framework.platforms.sim.world import Move, World, current, start

__all__ = [
    "Event",
    "Move",
    "SimCompat",
    "SimFault",
    "SimGenerator",
    "SimOOM",
    "SimPlatform",
    "SimRace",
    "SimTensor",
    "Stream",
    "World",
    "current",
    "install",
    "start",
]
