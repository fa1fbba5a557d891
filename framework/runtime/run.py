"""One run from a decided spec to its end: checks, loading, requests, and the events around them. Imports torch."""

import time
from collections.abc import Sequence

from framework.errors import ConfigError, FrameworkError, Interrupted, PlanError
from framework.graph import Graph
from framework.loading.index import read_configs, read_index
from framework.loading.load import load_store
from framework.loading.source import locate_model
from framework.platforms import make_platform
from framework.registry import FAMILIES
from framework.runtime.context import Writer
from framework.runtime.events import EventBus, RunFinished, RunStarted
from framework.runtime.interrupts import Interrupts, interruptible
from framework.runtime.numerics import applied_numerics, refuse_unsupported
from framework.runtime.scheduler import RunResult, run_requests
from framework.spec import PipelineSpec, RequestSpec, RunSpec

REFUSED = (ConfigError.exit_code, PlanError.exit_code)  # nothing was computed


def execute(
    spec: RunSpec,
    graph: Graph,
    events: EventBus,
    writer: Writer | None = None,
    *,
    interrupts: Interrupts | None = None,
    keep: Sequence[str] = (),
) -> RunResult:
    """Check, load and run `spec`; the last event is always `RunFinished`.

    SIGINT and SIGTERM end the run as `Interrupted` within two seconds. Raises whatever ended the run.
    """
    started = time.perf_counter()
    status, message = "failed", None
    try:
        with interruptible(interrupts) as chosen:
            result = _execute(spec, graph, events, writer, chosen, keep)
        status = "done"
        return result
    except (Interrupted, KeyboardInterrupt) as error:
        status, message = "interrupted", str(error) or "interrupted"
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted("interrupted") from error
        raise
    except Exception as error:
        status = "refused" if isinstance(error, FrameworkError) and error.exit_code in REFUSED else "failed"
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise
    finally:
        events.emit(RunFinished(status, time.perf_counter() - started, message))


def _execute(
    spec: RunSpec,
    graph: Graph,
    events: EventBus,
    writer: Writer | None,
    interrupts: Interrupts,
    keep: Sequence[str],
) -> RunResult:
    refuse_unsupported(spec.numerics)
    check_requests(spec.pipeline, spec.requests)
    device = make_platform(spec.device).device
    events.emit(RunStarted(spec.pipeline.name, len(spec.requests), str(device)))
    interrupts.check()
    store = load_store(spec.pipeline, graph, spec.placements, events, device, interrupts.check)
    with applied_numerics(spec.numerics, store):
        return run_requests(spec, graph, store, events, writer, interrupts=interrupts, keep=keep)


def check_requests(pipeline: PipelineSpec, requests: Sequence[RequestSpec]) -> None:
    """Refuse sizes that the checkpoint cannot make, before any weight is read. Raises `ConfigError`, `LoadError`."""
    if pipeline.family is None:
        return
    family = FAMILIES.get(pipeline.family)()
    index = read_index(locate_model(pipeline.model, pipeline.hints))
    configs = read_configs(index)
    problems = [found for request in requests for found in family.check_request(request, index.options, configs)]
    if problems:
        raise ConfigError(dict.fromkeys(problems))
