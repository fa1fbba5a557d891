"""A sweep over a real Ray cluster of two nodes on this machine, with workers that cost nothing."""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
MEMORY_BYTES = 100 << 20
NODE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": MEMORY_BYTES}
States = Callable[[], dict[int, dict[str, Any]]]


LIMIT_S = 120  # for a test: what waits for a cluster may wait for ever


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Fail a test that hangs."""

    def over(number: int, frame: Any) -> None:
        raise TimeoutError(f"not done after {LIMIT_S} s")

    kept = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, kept)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes, the second of which may be killed."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="r") as folder:
        patch.setenv("RAY_TMPDIR", folder)  # sockets lie there, whose paths must be short
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(path or os.getcwd() for path in sys.path))
        found = cluster_utils.Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        found.second = found.add_node(**{**NODE, "num_gpus": 2, "resources": {"card:rtx_4090": 2}})
        try:
            yield found
        finally:
            found.shutdown()


@pytest.fixture
def on_ray(cluster: Any, fake_workers: None, sweep: Callable[..., int]) -> Callable[..., int]:
    start = ["--engine", "ray", f"sweep.ray.address={cluster.address}", "--devices", "none:2"]
    return lambda *words: sweep(*start, *words)


def test_jobs_on_a_cluster_end_as_those_on_one_machine_do(
    tmp_path: Path, on_ray: Callable[..., int], states: States
) -> None:
    """Both nodes work; logs and results come back, also those of jobs that raise, exit or hang."""
    words = ["prompt=choice('good 1','good 2',raise,exit,hang)", "sweep.job_limit_s=5"]
    assert on_ray(*words) == 4
    found = states()
    assert [state["status"] for state in found.values()] == ["done", "done", "failed", "failed", "failed"]
    nodes = {attempt["device"].partition("@")[2] for state in found.values() for attempt in state["attempts"]}
    assert len(nodes) == 2
    folders = {number: tmp_path / "s" / state["name"] for number, state in found.items()}
    for number, folder in folders.items():
        assert f"printed by {found[number]['name']}" in (folder / "log.txt").read_text(encoding="utf-8")
        assert (folder / "record.json").is_file()
    assert (folders[1] / "seen.txt").is_file()
    assert "Traceback" in (folders[3] / "log.txt").read_text(encoding="utf-8")
    assert "exit code 3" in found[4]["error"]
    assert "longer than 5 s" in found[5]["error"]
    assert {len(state["attempts"]) for state in found.values()} == {1}


def test_each_gpu_of_a_cluster_is_shown_to_one_worker(
    tmp_path: Path, on_ray: Callable[..., int], states: States, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPUs are a resource of Ray's (these are pretended), and so is the card that a node says it has."""
    assert on_ray("seed=1,2", "--devices", "0,1", "--dry-run") == 2
    assert "'0,1' names no devices of a cluster; write auto, sim:4 or none:2" in capsys.readouterr().err
    assert on_ray("prompt=pause", "seed=1,2", "--devices", "auto") == 0
    found = states()
    assert {state["attempts"][0]["device"].partition("@")[0] for state in found.values()} == {"cuda:0", "cuda:1"}
    seen = [(tmp_path / "s" / state["name"] / "seen.txt").read_text(encoding="utf-8") for state in found.values()]
    assert sorted(text.partition("'CUDA_VISIBLE_DEVICES': '")[2][0] for text in seen) == ["0", "1"]


def test_the_jobs_of_a_lost_node_run_elsewhere_once(
    tmp_path: Path, cluster: Any, on_ray: Callable[..., int], states: States
) -> None:
    """A node is killed in the middle; every job ends once."""
    killer = threading.Thread(target=kill_when_busy, args=(tmp_path / "s", cluster))
    killer.start()
    assert on_ray("prompt=pause", "seed=range(0,6)") == 0
    killer.join()
    found = states()
    assert [state["status"] for state in found.values()] == ["done"] * 6
    lost = [state for state in found.values() if len(state["attempts"]) > 1]
    assert len(lost) == 1
    assert [attempt["status"] for attempt in lost[0]["attempts"]] == ["interrupted", "done"]
    assert "was lost" in lost[0]["attempts"][0]["error"]
    assert len({attempt["device"] for attempt in lost[0]["attempts"]}) == 2
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "s").glob("*/record.json")]
    assert [record["status"] for record in records] == ["done"] * 6
    assert main(["sweep", "--dir", str(tmp_path / "s"), "--status"]) == 0


def kill_when_busy(folder: Path, cluster: Any) -> None:
    """Kill the second node once a job there has said something."""
    second = str(cluster.second.node_id)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in folder.glob("*/job.json"):
            state = json.loads(path.read_text(encoding="utf-8"))
            log = path.parent / "log.txt"
            if (
                state["status"] == "running"
                and on_node(state, second)
                and log.is_file()
                and "printed" in log.read_text()
            ):
                cluster.remove_node(cluster.second, allow_graceful=False)
                return
        time.sleep(0.05)


def on_node(state: dict[str, Any], node: str) -> bool:
    """Whether the job runs on that node; names follow from identities, as both are on one host."""
    import ray

    identities = sorted(str(one["NodeID"]) for one in ray.nodes() if one["Alive"]) if ray.is_initialized() else []
    return node in identities and state["attempts"][-1]["device"].endswith("-2") == (identities.index(node) == 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep.ray.address=127.0.0.1:1"], "sweep.ray.address: nobody answers at '127.0.0.1:1'"),
        (["sweep.ray.memory=80%"], "sweep.ray.memory: '80%' is no amount of memory; write 32GiB"),
    ],
)
def test_a_cluster_that_is_not_there_is_told_at_once(
    words: list[str], message: str, sweep: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--engine", "ray", "seed=1,2", *words) == 2
    assert message in capsys.readouterr().err
