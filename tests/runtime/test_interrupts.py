"""A run stops within two seconds of a signal, wherever it is, and says that it was interrupted."""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import spec_builders
from spec_builders import Recorder, request, run_spec

from framework.errors import Interrupted
from framework.graph import build_graph
from framework.loading import load
from framework.runtime import interrupts, run
from framework.runtime.events import ComponentLoading, EventBus, RunFinished, StepDone
from framework.runtime.interrupts import Interrupts, interruptible
from framework.runtime.run import execute

LIMIT_S = 2.0


@contextmanager
def signalled(number: signal.Signals, after_s: float) -> Iterator[None]:
    """Send this process a signal `after_s` seconds into the block and check that the block then ends in time."""
    timer = threading.Timer(after_s, os.kill, (os.getpid(), number))
    started = time.perf_counter()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        assert time.perf_counter() - started < after_s + LIMIT_S


def interrupted_run(spec: Any) -> Recorder:
    recorder = Recorder()
    with pytest.raises(Interrupted) as caught:
        execute(spec, build_graph(spec.pipeline), EventBus(recorder))
    assert caught.value.exit_code == 130
    assert recorder.events[-1] == recorder.of(RunFinished)[0]
    assert recorder.events[-1].status == "interrupted"
    return recorder


def test_a_signal_ends_a_slow_load(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    loaded = load.load_part

    def slow(part: Any, model: Any) -> Any:
        if not part.is_module:
            return loaded(part, model)
        started.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
        return time.sleep(5)

    monkeypatch.setattr(load, "load_part", slow)
    recorder = interrupted_run(run_spec(spec_builders.pipeline("digits", lambda name: None)))
    assert time.perf_counter() - started[0] < LIMIT_S
    assert len(started) == len(recorder.of(ComponentLoading)) == 1


def test_a_signal_ends_a_long_loop_at_the_next_check(
    loaded_stores: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loaded_stores("wan21")
    monkeypatch.setattr(interrupts, "GRACE_S", 60.0)  # the deadline must not be what stops it
    slow = loaded[2].module("transformer").register_forward_pre_hook(lambda *_: time.sleep(0.05))
    with signalled(signal.SIGTERM, 0.3), pytest.raises(Interrupted, match="SIGTERM"), interruptible() as chosen:
        spec_builders.run(loaded, request(num_inference_steps=50), interrupts=chosen)
    slow.remove()


def test_an_interrupted_run_leaves_no_weights_in_memory(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[Any]] = []

    def remembered(*arguments: Any, **options: Any) -> Any:
        store = load.load_store(*arguments, **options)
        kept.extend(weakref.ref(store.module(name)) for name in ("transformer", "vae"))
        return store

    monkeypatch.setattr(run, "load_store", remembered)
    stop = Interrupts()

    def at_the_first_step(event: Any) -> None:
        if isinstance(event, StepDone):
            stop.request()

    spec = run_spec(spec_builders.pipeline("digits", lambda name: None))
    with pytest.raises(Interrupted) as caught:
        execute(spec, build_graph(spec.pipeline), EventBus(at_the_first_step), interrupts=stop)
    caught.value.with_traceback(None)
    del caught
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


def test_after_an_interrupt_the_next_run_is_whole(loaded_stores: Callable[[str], Any]) -> None:
    loaded = loaded_stores("wan21")
    stopped = Interrupts()
    stopped.request()
    with pytest.raises(Interrupted):
        spec_builders.run(loaded, request(), interrupts=stopped)
    _, recorder = spec_builders.run(loaded, request())
    assert len(recorder.of(StepDone)) == 3


def test_code_that_never_checks_is_stopped_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "GRACE_S", 0.1)
    with pytest.raises(Interrupted), interruptible(), signalled(signal.SIGINT, 0.1):
        time.sleep(5)


def test_a_second_signal_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "GRACE_S", 60.0)
    with interruptible():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted), signalled(signal.SIGINT, 0.1):
            time.sleep(5)


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (*interrupts.SIGNALS, signal.SIGALRM)]
    with interruptible():
        pass
    assert [signal.getsignal(number) for number in (*interrupts.SIGNALS, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_outside_the_main_thread_a_request_still_stops() -> None:
    seen: list[Exception] = []

    def body() -> None:
        with interruptible() as chosen:
            chosen.request("stopped by its owner")
            try:
                chosen.check()
            except Interrupted as error:
                seen.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert [str(error) for error in seen] == ["stopped by its owner"]
