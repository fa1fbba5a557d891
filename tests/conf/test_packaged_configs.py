"""Every packaged file composes and validates, and its head tells the truth."""

import json
import re
import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from framework.compose.arguments import parse
from framework.compose.composer import compose
from framework.compose.overrides import GROUPS, INSTANTIATE
from framework.compose.schema import inline_schema, load_schema
from framework.compose.text import is_path_key, is_text_key
from framework.compose.yaml_file import read_document
from framework.paths import CONF, EMBEDDED_MODELS, SCHEMAS
from framework.sweep.plan import plan_sweep

FILES = sorted(path for group in GROUPS for path in (CONF / group).glob("*.yaml"))
START = re.compile(r"python -m framework (?:run|sweep)\b")
NAMES = [f"{path.parent.name}/{path.stem}" for path in FILES]


PIPELINES = [path for path in FILES if path.parent.name == "pipeline"]


def command_of(file: Path) -> list[str]:
    """The words after `run` or `sweep` in the head of a file."""
    line = next(line for line in file.read_text(encoding="utf-8").splitlines() if START.search(line))
    return shlex.split(START.split(line)[1])


def shape_of(pipeline: Path) -> tuple[object, ...]:
    """What a preset can tell apart of a pipeline: names, groups and whether there are layers to stream."""
    data = read_document(pipeline).data
    parts = [
        (name, part.get("group"), bool(part.get("layers"))) for name, part in (data.get("components") or {}).items()
    ]
    return (data.get("backend"), *sorted(parts, key=str))


ONE_OF_EACH_SHAPE = list({shape_of(path): path for path in PIPELINES}.values())


@pytest.mark.parametrize("pipeline", ONE_OF_EACH_SHAPE, ids=lambda path: path.stem)
@pytest.mark.parametrize("preset", [path.stem for path in FILES if path.parent.name == "residency"])
def test_every_shape_of_pipeline_takes_every_preset(pipeline: Path, preset: str) -> None:
    words = [word for word in command_of(pipeline) if not word.startswith(("residency=", "pipeline="))]
    spec = compose([f"pipeline={pipeline.stem}", *words, f"residency={preset}"])
    assert set(spec.placements) == set(spec.pipeline.components)


def test_the_embedded_pipeline_states_the_depths_of_its_model() -> None:
    components = compose([]).pipeline.components
    for name in ("text_encoder", "transformer", "transformer_2"):
        config = json.loads((EMBEDDED_MODELS / "digits" / name / "config.json").read_text(encoding="utf-8"))
        assert components[name].num_layers == (config["num_layers"],)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_every_fragment_fits_the_schema_of_its_group(file: Path) -> None:
    data = read_document(file).data or {}
    assert not list(Draft202012Validator(inline_schema(file.parent.name)).iter_errors(data))


@pytest.mark.parametrize("file", [*FILES, CONF / "config.yaml"], ids=[*NAMES, "config"])
def test_every_head_has_a_schema_a_command_and_an_override_that_work(file: Path) -> None:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines()[:8] if line.startswith("#")]
    schema = next(line.partition("$schema=")[2] for line in lines if "yaml-language-server" in line)
    assert (file.parent / schema).resolve() == SCHEMAS / f"{'config' if file.parent == CONF else file.parent.name}.json"
    example = next(re.split(r"for example: ", line)[1] for line in lines if "for example: " in line)
    words, flags = parse([*command_of(file), *shlex.split(example)], ["dry_run"])
    assert file.parent == CONF or file.stem in ("digits", "none") or f"{file.parent.name}={file.stem}" in words
    if file.parent.name == "sweep" and file.stem != "none":
        assert not any(job.refusal for job in plan_sweep(words, flags, lambda spec: None).jobs)
    else:
        notes = compose(words).notes
        assert file not in PIPELINES or not notes  # a packaged pipeline has nothing to say against itself
    assert any("ownload" in line or "checkpoint" in line for line in lines)


@pytest.mark.parametrize("name", sorted(path.stem for path in SCHEMAS.glob("*.json")))
def test_every_schema_is_draft_2020_12_and_describes_every_property(name: str) -> None:
    Draft202012Validator.check_schema(load_schema(name))
    for key, schema in properties(inline_schema(name), ""):
        assert schema.get("description"), f"{name}: {key}"


def test_every_object_is_closed_but_for_the_open_maps() -> None:
    for key, schema in properties(inline_schema("config"), ""):
        for branch in (schema, *schema.get("oneOf", [])):
            if "properties" in branch:
                assert branch["additionalProperties"] is False, key


def test_the_marks_of_the_schemas_and_the_text_and_path_keys_agree() -> None:
    for key, schema in properties(inline_schema("config"), ""):
        assert bool(schema.get("x-text")) == is_text_key(key), key
        if is_path_key(key.replace(".*", ".x")):
            assert schema.get("x-path"), key


def test_no_packaged_file_names_anything_to_build() -> None:
    for file in [*FILES, CONF / "config.yaml"]:
        assert not INSTANTIATE & set(re.findall(r"\w+", file.read_text(encoding="utf-8")))


def test_the_root_config_names_every_key_of_the_schema() -> None:
    data = read_document(CONF / "config.yaml").data
    known = set(inline_schema("config")["properties"]) - {"defaults", "plugins", "requests", *GROUPS}
    assert set(data) - {"defaults"} == known


def properties(schema: dict, key: str):  # type: ignore[no-untyped-def,type-arg]
    """Yield (dotted key, schema) of every property below a schema; `*` stands for any name."""
    for name, inner in schema.get("properties", {}).items():
        here = f"{key}.{name}" if key else name
        yield here, inner
        yield from properties(inner, here)
    for branch in schema.get("oneOf", []):
        yield from properties(branch, key)
    for part in ("additionalProperties", "items"):
        if isinstance(schema.get(part), dict):
            yield from properties(schema[part], f"{key}.*")
