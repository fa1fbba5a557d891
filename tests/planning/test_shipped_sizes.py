"""Every shipped pipeline has known sizes without a checkpoint, and its YAML's layers are those of the sheet."""

from typing import Any

import pytest
import yaml

from framework.paths import CONF
from framework.planning.inventory import inventory
from framework.planning.sheets import find_sheet
from framework.spec import ComponentSpec, ModelSpec, PipelineSpec


def shipped() -> dict[str, dict[str, Any]]:
    """The pipelines that name a checkpoint of the hub in their own file."""
    found = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in CONF.glob("pipeline/*.yaml")}
    return {name: values for name, values in sorted(found.items()) if "/" in source(values) and values["components"]}


def source(values: dict[str, Any]) -> str:
    return str((values.get("model") or {}).get("source") or "")


SHIPPED = shipped()
SHEETED = {name: values for name, values in SHIPPED.items() if find_sheet(source(values))}


def sizes_of(values: dict[str, Any]) -> Any:
    components = {
        name: ComponentSpec(
            name=name,
            dtype=part.get("dtype"),
            layers=tuple(part.get("layers") or ()),
            source=part.get("source"),
            optional=bool(part.get("optional")),
        )
        for name, part in values["components"].items()
    }
    named = values["model"]
    model = ModelSpec(source=named["source"], dtype=named.get("dtype"), variant=named.get("variant"))
    spec = PipelineSpec(name="x", family=None, backend="standard", model=model, components=components, stages={})
    return inventory(spec, frozenset(components), connect=False)


def test_every_shipped_checkpoint_has_a_sheet() -> None:
    assert set(SHEETED) == set(SHIPPED)
    assert len(SHIPPED) > 4


@pytest.mark.parametrize("name", SHEETED)
def test_a_shipped_pipeline_is_known_before_anything_is_fetched(name: str) -> None:
    values = SHEETED[name]
    for component, sizes in sizes_of(values).items():
        assert sizes.size_bytes, f"{component}: {sizes.notes}"
        assert sizes.notes == (), component
        wanted = values["components"][component].get("num_layers")
        if wanted is not None:
            assert [len(stack.layers) for stack in sizes.stacks] == wanted, component
