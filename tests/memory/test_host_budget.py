"""Host memory as the machine and the container see it (case ME-04)."""

from pathlib import Path

import pytest

from framework.memory.host_budget import read_host_memory

UNIT = 1024**3


class Machine:
    """Fake /proc and cgroup roots of a host with 64 units, 60 of them free."""

    def __init__(self, root: Path) -> None:
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.cgroup.mkdir()
        kib = UNIT // 1024
        (self.proc / "meminfo").write_text(f"MemTotal: {64 * kib} kB\nMemFree: {kib} kB\nMemAvailable: {60 * kib} kB\n")

    def own(self, line: str) -> None:
        (self.proc / "self" / "cgroup").write_text(line + "\n")

    def v2(self, path: str, cap: object, usage: float, cache: float = 0) -> None:
        folder = self.cgroup / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{cap if cap == 'max' else int(float(str(cap)) * UNIT)}\n")
        (folder / "memory.current").write_text(f"{int(usage * UNIT)}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {int(cache * UNIT)}\n")

    def v1(self, path: str, cap_bytes: int, usage: float, cache: float = 0) -> None:
        folder = self.cgroup / "memory" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.limit_in_bytes").write_text(f"{cap_bytes}\n")
        (folder / "memory.usage_in_bytes").write_text(f"{int(usage * UNIT)}\n")
        (folder / "memory.stat").write_text(f"total_inactive_file {int(cache * UNIT)}\n")

    def available(self) -> float:
        return read_host_memory(self.proc, self.cgroup).available_bytes / UNIT


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_limit_the_machine_counts(machine: Machine) -> None:
    found = read_host_memory(machine.proc, machine.cgroup)
    assert (found.total_bytes, found.available_bytes, found.limit) == (64 * UNIT, 60 * UNIT, "machine")


def test_a_container_limit_beats_the_machine_and_is_named(machine: Machine) -> None:
    machine.own("0::/box")
    machine.v2("box", 2, 0.5)
    found = read_host_memory(machine.proc, machine.cgroup)
    assert found.available_bytes == 1.5 * UNIT
    assert found.total_bytes == 2 * UNIT
    assert found.limit == str(machine.cgroup / "box")


def test_page_cache_that_can_be_dropped_counts_as_free(machine: Machine) -> None:
    machine.own("0::/box")
    machine.v2("box", 2, 0.5, cache=0.25)
    assert machine.available() == 1.75


def test_a_machine_that_is_fuller_than_the_limit_counts(machine: Machine) -> None:
    machine.own("0::/box")
    machine.v2("box", 63, 0)
    assert machine.available() == 60


def test_v1_files_are_read_where_there_is_no_v2(machine: Machine) -> None:
    machine.own("4:cpu:/x\n7:memory:/box")
    machine.v1("box", 2 * UNIT, 0.5, cache=0.25)
    assert machine.available() == 1.75


def test_the_v1_number_that_means_no_limit_is_none(machine: Machine) -> None:
    machine.own("7:memory:/box")
    machine.v1("box", 9223372036854771712, 0.5)
    assert machine.available() == 60


def test_max_means_no_limit(machine: Machine) -> None:
    machine.own("0::/box")
    machine.v2("box", "max", 0.5)
    assert machine.available() == 60


@pytest.mark.parametrize(("outer", "inner", "left"), [(8, 4, 3), (4, 8, 3)])
def test_the_tightest_of_nested_limits_wins(machine: Machine, outer: int, inner: int, left: int) -> None:
    machine.own("0::/outer/inner")
    machine.v2("outer", outer, 1)
    machine.v2("outer/inner", inner, 1)
    assert machine.available() == left


def test_an_unknown_container_path_falls_back_to_the_mount(machine: Machine) -> None:
    machine.own("0::/docker/abc")
    machine.v2("", 3, 1)
    assert machine.available() == 2


def test_the_end_of_the_path_is_found_below_the_mount(machine: Machine) -> None:
    machine.own("0::/pods/p1/main")
    machine.v2("p1/main", 5, 1)
    assert machine.available() == 4


def test_a_usage_above_the_limit_leaves_nothing(machine: Machine) -> None:
    machine.own("0::/box")
    machine.v2("box", 1, 2)
    assert machine.available() == 0
