"""Rules that stand above what anybody asked for: what a component, or the machine, cannot do. No torch."""

from dataclasses import dataclass, field

from framework.compose.selectors import EXACT
from framework.compose.settings import Findings, Setting
from framework.compose.sources import ComponentFacts, MachineFacts
from framework.quantization import METHODS

RESIDENT, COMPONENT, LAYERWISE = "resident", "component-offload", "layerwise-offload"
AUTO = "auto"
"""What the planner is to decide; no strategy has this name."""


@dataclass(frozen=True, slots=True)
class Override:
    """A rule that changed a component's mode: its name, the new mode, and why."""

    rule: str
    mode: str
    why: str


def cannot(mode: str, facts: ComponentFacts) -> str:
    """Why a component cannot do `mode`; empty when it can, as far as is known before loading."""
    if mode == LAYERWISE and facts.stack_lengths is not None and not any(facts.stack_lengths):
        return "it has no list of layers to stream"
    if facts.quantized is None:
        return ""
    method = METHODS.get(facts.quantized)
    if method is not None:
        reason = method.refusal(mode)
        return f"its weights are quantised by {method.name}: {reason}" if reason else ""
    adapted = facts.quantized.lower().startswith("modelopt")  # its layers keep their format when streamed
    if mode == LAYERWISE and not adapted:
        return f"its weights are quantised by {facts.quantized}, whose layers cannot be streamed one by one"
    if mode == COMPONENT and adapted:
        return f"its weights are quantised by {facts.quantized} and are finished on the device"
    return ""


@dataclass(slots=True)
class Rules:
    """The facts that rules go by, and what they have to say once all components are seen."""

    machine: MachineFacts | None
    fsdp: Setting | None
    findings: Findings
    on_device: dict[str, str] = field(default_factory=dict)  # component -> the mode that the device cannot give

    def on_component(self, name: str, facts: ComponentFacts, winner: Setting | None) -> list[Override]:
        """What the component itself, or a sharding option, makes of the mode asked for."""
        mode = winner.text if winner else RESIDENT
        if winner is None or mode == RESIDENT:
            return []
        if not facts.used:
            return self._unused(name, winner)
        if why := cannot(mode, facts):
            return self._cannot(name, facts, winner, why)
        self._with_fsdp(name, winner)
        return []

    def on_machine(self, name: str, mode: str) -> list[Override]:
        """What the device makes of a mode; remembered for one line in all."""
        kind = self.machine.kind if self.machine else None
        if mode == RESIDENT or (kind != "cpu" and (kind != "mps" or mode != COMPONENT)):
            return []
        if mode != AUTO:
            self.on_device[name] = mode
        why = "everything is resident on cpu" if kind == "cpu" else "mps has one memory: nothing to move a component to"
        return [Override(f"device {kind}", RESIDENT, why)]

    def finish(self) -> None:
        """The one line of the device."""
        if self.on_device and self.machine:
            asked = ", ".join(f"{name} ({mode})" for name, mode in self.on_device.items())
            modes = "offload modes run" if self.machine.kind == "cpu" else "component-offload runs"
            self.findings.note(f"device {self.machine.kind}: {modes} resident here: {asked}")

    def _unused(self, name: str, winner: Setting) -> list[Override]:
        if winner.origin.layer == "user" and winner.targets[name] == EXACT:
            reason = f"no stage declares a use of '{name}', so nothing would manage its {winner.text}"
            hint = "declare it in a stage's component_uses, or leave it resident"
            self.findings.refuse(winner.key, reason, winner.origin, hint)
        elif winner.origin.layer == "user":
            text = f"{winner.text} is not applied to {name}: no stage declares a use of it"
            self.findings.note(text, winner.key, winner.origin)
        return [Override("no declared use", RESIDENT, f"no stage declares a use of {name}")]

    def _cannot(self, name: str, facts: ComponentFacts, winner: Setting, why: str) -> list[Override]:
        able = [mode for mode in (COMPONENT, RESIDENT, LAYERWISE) if not cannot(mode, facts)]
        if winner.origin.layer == "user":
            reason = f"'{name}' cannot do {winner.text}: {why}"
            hint = f"{' and '.join(able)} would work, for example component_residency.{name}={able[0]}"
            self.findings.refuse(winner.key, reason, winner.origin, hint)
        else:
            text = f"{name} cannot do {winner.text} ({why}); it falls back to {able[0]}"
            self.findings.note(text, winner.key, winner.origin)
        return [Override("component", able[0], why)]

    def _with_fsdp(self, name: str, winner: Setting) -> None:
        fsdp = self.fsdp
        if fsdp is None or name not in fsdp.targets or winner.origin.layer != "user":
            return
        if winner.text == LAYERWISE:
            self.findings.note(f"{name} is streamed, so {fsdp.key} leaves it alone", winner.key, winner.origin)
        else:
            reason = f"'{name}' is asked to be {winner.text}, but {fsdp.key} ({fsdp.origin.where}) needs it resident"
            self.findings.refuse(winner.key, reason, winner.origin, "drop one of them")
