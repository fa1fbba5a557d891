"""A seat on a node, without Ray: what an earlier attempt has kept comes with the job and goes with it."""

from pathlib import Path
from typing import Any

import pytest

from framework.sweep import ray_seat
from framework.sweep.transfer import pack_files


class Worker:
    """Takes the process's place and remembers what it was handed."""

    def __init__(self, *_: Any) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Worker:
    made = Worker()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray_seat, "WorkerProcess", lambda *_: made)
    return made


def test_a_job_that_was_half_done_gets_what_was_kept_of_it(worker: Worker, tmp_path: Path) -> None:
    attempt = tmp_path / "attempt-1"
    (attempt / "artifacts").mkdir(parents=True)
    (attempt / "artifacts" / "denoise.step7.safetensors").write_bytes(b"kept")
    seat = ray_seat.Seat("none", {}, "framework", ())
    message = {"event": "job", "job": "0001-a", "folder": "/on/another/machine", "earlier": "/there/too"}
    seat.run(message, pack_files(attempt))
    (sent,) = worker.sent
    earlier, folder = Path(sent["earlier"]), Path(sent["folder"])
    assert (earlier / "artifacts" / "denoise.step7.safetensors").read_bytes() == b"kept"
    assert seat.files() == []
    seat.forget()
    assert not earlier.exists()
    assert not folder.exists()


def test_a_job_that_nothing_was_kept_of_begins_at_the_start(worker: Worker) -> None:
    ray_seat.Seat("none", {}, "framework", ()).run({"job": "0001-a", "earlier": "/there/too"}, pack_files(None))
    assert worker.sent[0]["earlier"] is None
