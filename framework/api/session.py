"""A pipeline that stays loaded: requests come one after the other, weights stay in their tiers. No torch at import."""

from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from framework.api.configs import Config, RequestValues, spec_of
from framework.api.results import Form, Result
from framework.api.serving import Asked, load, serve
from framework.api.watching import EventCallback, StepCallback
from framework.errors import FrameworkError
from framework.spec import RunSpec

if TYPE_CHECKING:
    from framework.runtime.warm import Warm


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """Where one component is: its mode, all its bytes, and those on the device in a use and between uses."""

    mode: str
    size_bytes: int
    used_bytes: int
    idle_bytes: int


class Session:
    """Made by `framework.open`; a context manager. Not for several threads at once.

    A request that is interrupted or refused leaves everything ready for the next; after one that failed the weights
    are loaded anew.
    """

    def __init__(self, spec: RunSpec, *, progress: bool = False) -> None:
        from framework.runtime.warm import Warm

        self._spec, self._progress = replace(spec, warmup=False), progress
        self._warm: Warm | None = Warm(moves=True)
        self._load()

    @property
    def spec(self) -> RunSpec:
        """What the next request starts from."""
        return self._spec

    def run(
        self,
        *words: str,
        outputs: Form = "images",
        on_step: StepCallback | None = None,
        on_event: EventCallback | None = None,
        **values: Unpack[RequestValues],
    ) -> Result:
        """Serve one request with `words` and `values` on top of the session's config, for this request only.

        `outputs` is `images`, `arrays` or `paths` (a run folder with record, log and report). `on_step` hears every
        step with its latents, `on_event` everything; one that raises `framework.Interrupted` ends the request.
        Raises `ConfigError`, `PlanError`, `StageError`, `OutputError` or `Interrupted`.
        """
        asked = Asked(form=outputs, on_step=on_step, on_event=on_event, progress=self._progress)
        return serve(spec_of(self._spec, words, values), asked, self._open())

    def change(self, *words: str) -> None:
        """Change the config of all requests to come. Words that place components move weights now, without loading.

        `session.change("component_residency.transformer=layerwise-offload", "layerwise.dit.resident=2")`. Words that
        change what is loaded (another model, dtype or `numerics`) load it anew. Raises `ConfigError` or `PlanError`;
        the session stays as it was then.
        """
        before, self._spec = self._spec, spec_of(self._spec, words)
        try:
            self._load()
        except FrameworkError:
            self._spec = before
            raise

    def components(self) -> dict[str, Residence]:
        """Return where every component is now."""
        loaded = self._open().loaded
        if loaded is None:
            return {}
        from framework.loading.weights import size_bytes

        footprints = loaded.placed.footprints()
        return {
            name: Residence(
                mode=loaded.placed.mode(name),
                size_bytes=size_bytes(loaded.placed.built(name)[0]),
                used_bytes=footprints[name].used_bytes,
                idle_bytes=footprints[name].idle_bytes,
            )
            for name in sorted(loaded.placed.components())
        }

    def close(self) -> None:
        """Give up the weights and their memory; may be called twice."""
        if self._warm is not None:
            self._warm.close()
            self._warm = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self) -> None:
        load(self._spec, self._open(), Asked(progress=self._progress))

    def _open(self) -> "Warm":
        if self._warm is None:
            raise ValueError("the session is closed")
        return self._warm


def open_session(config: Config = (), *, progress: bool = False, **values: Unpack[RequestValues]) -> Session:
    """Load the pipeline of `config` and keep it: `with framework.open(["pipeline=digits"]) as session: ...`.

    Its prompt may be left to the requests. `progress` shows bars, or lines where there is no terminal, as `run` does.
    Raises what `run` raises before its first stage.
    """
    return Session(spec_of(config, (), values), progress=progress)


def run(
    config: Config = (),
    *words: str,
    outputs: Form = "images",
    on_step: StepCallback | None = None,
    on_event: EventCallback | None = None,
    progress: bool = False,
    **values: Unpack[RequestValues],
) -> Result:
    """Load, run and give everything up again; the arguments are those of `open` and `Session.run`."""
    asked = Asked(form=outputs, on_step=on_step, on_event=on_event, progress=progress)
    return serve(spec_of(config, words, values), asked)
