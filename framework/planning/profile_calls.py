"""Every call of a component: passed through once for each kind of input, counted ever after. Imports torch.

The first call of a kind runs the component's own code on shapes, layer by layer; later ones make its result again,
with the same peak, for what costs memory and time depends on shapes alone. A call whose code looks at numbers (a mask,
say) is alike only to calls with the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, Protocol

from torch import nn

from framework.errors import ConfigError
from framework.memory.layers import find_stacks
from framework.planning.facts import CallWork
from framework.planning.profile_dispatch import ShapePass
from framework.planning.profile_signature import Again, NotRepeatable, blocks_of, new_bytes, repeater, signature
from framework.planning.profile_tape import Sum
from framework.planning.profile_tensor import Mark, ShapeTensor

ENTRY_POINTS = ("encode", "decode", "generate", "get_image_features", "get_text_features")


class CallLog(Protocol):
    """Hears of calls: what is alive outside them is measured apart."""

    def begin_call(self) -> None: ...

    def end_call(self, work: CallWork) -> None: ...


@dataclass(slots=True)
class _Known:
    work: CallWork
    again: Again | None


@dataclass(slots=True)
class _Recording:
    """The stretches of one call: work before the first layer, layers with what follows each, and the rest."""

    mark: Mark
    before: Sum = field(default_factory=Sum)
    layers: list[tuple[tuple[str, int], Sum, Mark]] = field(default_factory=list)
    after: Sum = field(default_factory=Sum)


class WatchedComponent:
    """Stands between a pipeline and one component; `paths` are its lists of layers as the YAML has them."""

    def __init__(self, name: str, module: nn.Module, paths: Sequence[str], pass_: ShapePass, log: CallLog) -> None:
        self.name = name
        self._module = module
        self._pass = pass_
        self._log = log
        self._known: dict[Any, _Known] = {}
        self._needs_numbers: set[Any] = set()
        self._recording: _Recording | None = None
        self._watch_layers(paths)
        vars(module)["forward"] = self._counted("forward", module.forward)

    def watch_entry_points(self) -> None:
        """Do so for the ways into the module beside its forward; their hooks have to be on it already."""
        for entry in ENTRY_POINTS:
            method = getattr(self._module, entry, None)
            if callable(method):
                vars(self._module)[entry] = self._counted(entry, method)

    def _counted(self, entry: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._recording is not None:  # one way in leads through another
                return method(*args, **kwargs)
            self._log.begin_call()
            work, result = self._call(entry, method, args, kwargs)
            self._log.end_call(work)
            return result

        return call

    def _call(
        self, entry: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[CallWork, Any]:
        key = (entry, signature((args, kwargs)))
        if key in self._needs_numbers:
            key = (entry, signature((args, kwargs), with_numbers=True))
        known = self._known.get(key)
        if known is None or known.again is None:
            return self._run(entry, method, args, kwargs, key)
        memory = self._pass.memory
        work = replace(known.work, live_bytes=memory.live_bytes)
        if entry != "forward":  # the hook of a forward lies outside
            self._module._hf_hook.pre_forward(self._module)  # type: ignore[operator,union-attr]
        memory.spike(work.activation_bytes)
        return work, known.again(memory)

    def _run(
        self, entry: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: Any
    ) -> tuple[CallWork, Any]:
        tape, memory = self._pass.tape, self._pass.memory
        given = blocks_of((args, kwargs))
        before, tape.values_read = tape.current, False
        tape.read_outside.clear()
        self._recording = recording = _Recording(memory.watch())
        tape.current = recording.before
        try:
            result = method(*args, **kwargs)
        finally:
            self._recording, tape.current, tape.layer = None, before, None
            for mark in (recording.mark, *(mark for _, _, mark in recording.layers)):
                memory.unwatch(mark)
        work = self._work(entry, recording)
        if tape.values_read and key == (entry, signature((args, kwargs))):
            self._needs_numbers.add(key)
            key = (entry, signature((args, kwargs), with_numbers=True))
        kept_bytes = memory.live_bytes - work.live_bytes - new_bytes(result, given)
        self._known[key] = _Known(work, None if kept_bytes else _again(result, given))  # the next one makes no tables
        return work, result

    def _work(self, entry: str, recording: _Recording) -> CallWork:
        return CallWork(
            component=self.name,
            entry_point=entry,
            layers=tuple(place for place, _, _ in recording.layers),
            layer_work=tuple(sum_.work(mark.added_bytes) for _, sum_, mark in recording.layers),
            before=recording.before.work(),
            after=recording.after.work(),
            activation_bytes=recording.mark.added_bytes,
            live_bytes=recording.mark.start_bytes,
            reads_outside=tuple(name.partition(":")[2] for name in self._pass.tape.read_outside),
        )

    # --- layers

    def _watch_layers(self, paths: Sequence[str]) -> None:
        try:
            stacks = find_stacks(self.name, self._module, paths)
        except ConfigError:
            return  # it cannot be streamed, which is said where somebody asks for it
        for stack in stacks:
            for index, layer in enumerate(stack.layers):
                owner = f"{self.name}:{layer.name}"
                for tensor in (*layer.module.parameters(), *layer.module.buffers()):
                    assert isinstance(tensor, ShapeTensor)
                    self._pass.tape.owners[str(tensor.block.owner)] = owner
                layer.module.register_forward_pre_hook(partial(self._before_layer, (stack.path, index), owner))
                layer.module.register_forward_hook(self._after_layer)

    def _before_layer(self, place: tuple[str, int], owner: str, *_: Any) -> None:
        recording, tape = self._recording, self._pass.tape
        if recording is None:
            return
        if recording.layers:
            recording.layers[-1][1].rows.update(recording.after.rows)
        recording.after = Sum()
        sum_, tape.layer = Sum(), owner
        tape.current = sum_
        recording.layers.append((place, sum_, self._pass.memory.watch()))

    def _after_layer(self, *_: Any) -> None:
        recording, tape = self._recording, self._pass.tape
        if recording is None:
            return
        self._pass.memory.unwatch(recording.layers[-1][2])
        tape.layer, tape.current = None, recording.after


def _again(result: Any, given: frozenset[int]) -> Again | None:
    try:
        return repeater(result, given)
    except NotRepeatable:
        return None
