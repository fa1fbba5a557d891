"""From YAML files and the command line to one `RunSpec`. Imports Hydra and jsonschema on use, never torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from framework.compose.adapters import build_loras
from framework.compose.arguments import Flags
from framework.compose.budget import budget_problems, build_budget, build_reserve, with_folded
from framework.compose.build import build_output, build_pipeline
from framework.compose.checks import check_required, cross_problems, hint_for_unknown
from framework.compose.groups import check_choices, config_folders
from framework.compose.keeping import build_checkpoint, build_recover, checkpoint_problems
from framework.compose.layers import build_sources, component_facts
from framework.compose.legacy import legacy_name
from framework.compose.listed import with_listed_components
from framework.compose.numerics import build_numerics, numerics_notes, numerics_problems
from framework.compose.overrides import Override, read_overrides, refuse_swept_texts
from framework.compose.plugins import announce_entry_points, load_plugins, plugins_of_environment
from framework.compose.presets import preset_placements
from framework.compose.provenance import Provenance, trace
from framework.compose.quantize import build_quantize, method_names, quantize_notes, quantize_problems
from framework.compose.refusals import refuse_forbidden_data
from framework.compose.repeats import refuse_repeats
from framework.compose.request_keys import check_request_keys
from framework.compose.requests import beaten_by_lines, build_requests, in_its_file, put_requests
from framework.compose.residency import Resolution, resolve
from framework.compose.schema import COMPOSED, check_schema, composed_schema, fold_spellings
from framework.compose.sources import MachineFacts
from framework.compose.stated_components import taken_away, unused
from framework.compose.text import is_text_key
from framework.errors import ConfigError, Origin, Problem
from framework.graph import Graph, build_graph
from framework.quantization import Quantization
from framework.spec import LoraSpec, NumericsSpec, PipelineSpec, RequestSpec, RunSpec

if TYPE_CHECKING:
    from framework.compose.hydra_compose import Composition


@dataclass(frozen=True, slots=True)
class Composed:
    """A composed config before its checks: plain data and where everything came from."""

    data: dict[str, Any]
    provenance: Provenance


def compose(overrides: Sequence[str], flags: Flags | None = None, machine: MachineFacts | None = None) -> RunSpec:
    """Compose, check and resolve one run.

    `overrides` are the words of the command line; `machine` None applies no rule of a device. Raises `ConfigError`
    with every problem of the first step that finds any.
    """
    return check(compose_data(overrides, flags), machine)


def compose_data(overrides: Sequence[str], flags: Flags | None = None) -> Composed:
    """Compose the files and the command line into plain data, before any check of its content."""
    flags = flags or Flags()
    words = read_overrides(overrides)
    refuse_repeats(words)
    if flags.multirun:
        refuse_swept_texts(words)
    announce_plugins(words)
    composition = compose_words(words, flags)
    return finish_words(composition, words)


def compose_words(words: Sequence[Override], flags: Flags) -> "Composition":
    """Let Hydra compose the files that the group words choose."""
    from framework.compose.hydra_compose import compose_files, compose_packaged

    folders = config_folders(flags, words)
    check_choices(words, folders, flags.config_name)
    groups = [f"{word.key}={word.value}" for word in words if word.kind == "group"]
    if not folders and flags.config_name is None:
        return compose_packaged(groups)
    return compose_files(groups, folders, flags.config_name or "config")


def compose_saved(
    config: Mapping[str, Any],
    overrides: Sequence[str],
    provenance: Mapping[str, Origin] | None = None,
    machine: MachineFacts | None = None,
) -> RunSpec:
    """Check a config that a record stored, with overrides on top.

    The mapping is untrusted: the same schema, no code, no plugins, nothing interpolated. `provenance` says which
    layer each value belonged to; values it does not name count as the pipeline's or the preset's by their key.
    """
    return check(compose_saved_data(config, overrides, provenance), machine)


def compose_saved_data(
    config: Mapping[str, Any],
    overrides: Sequence[str],
    provenance: Mapping[str, Origin] | None = None,
    own: bool = False,
) -> Composed:
    """Put `overrides` on a stored config, before any check of its content; see `compose_saved`.

    `own`: it is the config of a spec of this process, and `provenance` is that spec's.
    """
    from framework.compose.saved import restore

    refuse_forbidden_data(config, "the saved config")
    words = read_overrides(overrides)
    refuse_repeats(words)
    announce_plugins(words)
    return Composed(*restore(config, words, provenance or {}, own))


def check(composed: Composed, machine: MachineFacts | None = None) -> RunSpec:
    """Check composed data and build the `RunSpec`; raises `ConfigError` with every problem found."""
    provenance = composed.provenance
    data = with_listed_components(checked_data(composed), provenance.locate)
    check_required(data, provenance.locate)
    problems = [*cross_problems(data, provenance.locate), *budget_problems(data, provenance.locate)]
    problems += numerics_problems(data, provenance.locate)
    pipeline = build_pipeline(data["pipeline"])
    lost = list(taken_away(data["pipeline"], provenance.locate))
    problems += lost
    graph = None if lost else _collect(problems, lambda: build_graph(pipeline, provenance.locate))
    problems += checkpoint_problems(data, graph, provenance.locate)
    loras = _collect(problems, lambda: build_loras(data, provenance.locate))
    requests = _collect(problems, lambda: build_requests(data, provenance.locate))
    notes = _collect(problems, lambda: check_request_keys(data, pipeline, graph, provenance.locate)) if graph else ()
    used = graph.used_components() if graph else frozenset(pipeline.components)
    quantized = _collect(problems, lambda: build_quantize(data, pipeline, used, provenance.locate)) or {}
    resolution = graph and _collect(problems, lambda: _resolve(data, provenance, pipeline, graph, quantized, machine))
    if resolution:
        device = data.get("device") or "auto"
        problems += quantize_problems(quantized, resolution.placements, device, provenance.locate)
    if problems:
        raise ConfigError(dict.fromkeys(in_its_file(problem, provenance.places) for problem in problems))
    assert requests is not None
    assert resolution is not None
    assert graph is not None
    notes = (*notes, *beaten_by_lines(data, provenance), *unused(pipeline, graph, provenance.locate))
    lines = (str(in_its_file(note, provenance.places)) for note in notes)
    numerics = build_numerics(data.get("numerics") or {}, quantized)
    changes = (*numerics_notes(numerics), *quantize_notes(quantized))
    resolution = replace(resolution, notes=(*resolution.notes, *lines, *changes))
    return _spec(data, provenance, pipeline, requests, loras, numerics, resolution)


def checked_data(composed: Composed) -> dict[str, Any]:
    """Fold spellings and check the schema; older keys in another spelling pass to the resolver."""
    schema = composed_schema()
    data = fold_spellings(composed.data, schema)
    odd = {key for key in data if key not in schema["properties"] and legacy_name(key)}
    try:
        check_schema({key: value for key, value in data.items() if key not in odd}, COMPOSED, composed.provenance.where)
    except ConfigError as error:
        raise ConfigError(hint_for_unknown(problem) for problem in error.problems) from None
    assert isinstance(data, dict)
    return data


def finish_words(composition: "Composition", words: Sequence[Override]) -> Composed:
    """Put the value words over composed files; the composition is changed."""
    from framework.compose.resolve import apply_overrides, to_plain

    chosen = {word.key: word for word in words if word.kind == "group"}
    provenance = trace(composition.layers, words, chosen)
    apply_overrides(composition.config, words, composition.journal)
    refuse_missing(provenance)
    data = to_plain(composition.config, composition.journal, provenance.where)
    put_requests(data, words, provenance)
    provenance.prune(data)
    return Composed(data, provenance)


def refuse_missing(provenance: Provenance) -> None:
    """Raise `ConfigError` for every `???` that nobody replaced; merging would keep what lies below without a word."""
    problems = [
        Problem(key, "a value is required", provenance.locate(key), f"set {key}=VALUE")
        for key, settings in provenance.settings.items()
        if settings[-1].value == "???" and not is_text_key(key)
    ]
    if problems:
        raise ConfigError(problems)


def announce_plugins(words: Sequence[Override] = ()) -> None:
    """Make third parties' stages and strategies known: installed ones, then those of the environment and of `words`."""
    announce_entry_points()
    load_plugins(plugins_of_environment(), "from the environment: FRAMEWORK_PLUGINS")
    for word in words:
        if word.kind == "plugins":
            load_plugins(word.value, word.where)


def _collect(problems: list[Problem], step: Callable[[], Any]) -> Any:
    """Run one step; its problems join the others."""
    try:
        return step()
    except ConfigError as error:
        problems += error.problems
        return None


def _resolve(
    data: Mapping[str, Any],
    provenance: Provenance,
    pipeline: PipelineSpec,
    graph: Graph,
    quantized: Mapping[str, Quantization],
    machine: MachineFacts | None,
) -> Resolution:
    facts = component_facts(pipeline, graph, method_names(quantized))
    sources, machine = build_sources(data, provenance), machine or _machine_of(data.get("device") or "auto")
    resolution = resolve(sources, facts, machine)
    return replace(resolution, presets=preset_placements(sources, facts, machine)) if resolution.planned else resolution


def _machine_of(device: str) -> MachineFacts | None:
    """What the device's name alone says; the CPU's rule is applied at run time, when the machine is known."""
    kind = device.partition(":")[0]
    return None if kind in ("auto", "cpu") else MachineFacts(kind=kind)


def _spec(
    data: dict[str, Any],
    provenance: Provenance,
    pipeline: PipelineSpec,
    requests: tuple[RequestSpec, ...],
    loras: tuple[LoraSpec, ...],
    numerics: NumericsSpec,
    resolution: Resolution,
) -> RunSpec:
    cache = data.get("prompt_cache") or {}
    said, beaten = with_folded(data, resolution.folded, provenance.origin)
    return RunSpec(
        pipeline=pipeline,
        requests=requests,
        placements=resolution.placements,
        numerics=numerics,
        output=build_output(data.get("output") or {}),
        device=data.get("device") or "auto",
        loras=loras,
        budget=build_budget(said["budget"]),
        reserve=build_reserve(data.get("reserve") or {}),
        planned=resolution.planned,
        presets=resolution.presets,
        checkpoint=build_checkpoint(data),
        recover=build_recover(data),
        warmup=said["warmup"] == "request",
        prompt_cache_memory=cache.get("memory") is not False,
        prompt_cache_disk=bool(cache.get("disk")),
        config=data,
        provenance=provenance.origins(),
        notes=(*resolution.notes, *beaten),
    )
