"""A recorded config repeats its run and is treated as untrusted data."""

import json
from typing import Any

import pytest

from framework.compose.composer import compose, compose_saved
from framework.errors import ConfigError, Origin
from framework.spec import RunSpec


def saved(spec: RunSpec) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(json.dumps(spec.config))
    return config


def modes(spec: RunSpec) -> dict[str, Any]:
    return {name: (p.mode, p.prefetch, p.resident, p.policy) for name, p in spec.placements.items()}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["pipeline=wan2", "residency=low_vram", "residency.modes.all=resident", "seed=[1,2]"],
        ["pipeline=wan2", "residency=balanced", "layerwise.dit.resident=4", "prompt=${x} a, b"],
        ["pipeline=wan2", "dit_cpu_offload=true", "vae_cpu_offload=false"],
        ["performance_mode=speed"],
    ],
)
def test_a_saved_config_gives_the_same_run(words: list[str]) -> None:
    spec = compose(words)
    again = compose_saved(saved(spec), [], spec.provenance)
    assert (again.requests, again.pipeline, modes(again)) == (spec.requests, spec.pipeline, modes(spec))
    assert again.config == spec.config


def test_overrides_go_on_top_of_a_saved_config() -> None:
    spec = compose(["pipeline=wan2", "residency=low_vram", "component_residency.vae=resident"])
    again = compose_saved(saved(spec), ["seed=9", "residency=minimal"], spec.provenance)
    assert again.requests[0].seeds == (9,)
    assert again.config["residency"]["name"] == "minimal"
    assert again.placements["transformer"].prefetch.written == "0"  # type: ignore[union-attr]
    assert again.placements["vae"].mode == "resident"
    assert again.provenance["residency.name"].where.startswith("conf/residency/minimal.yaml:")


def test_requests_of_a_record_are_repeated(tmp_path: Any) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"prompt": "a one", "seed": 1}\n{"prompt": "a two", "seed": 2}\n')
    spec = compose([f"requests=@{file}"])
    file.unlink()
    assert compose_saved(saved(spec), []).requests == spec.requests


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"plugins": ["os"]}, "a file cannot name code to import"),
        ({"hydra": {}}, "Hydra's own settings are refused"),
        ({"request": {"_target_": "os.system"}}, "nothing is ever instantiated"),
        ({"promt": "x"}, "unknown key 'promt'; did you mean 'prompt'"),
        ({"requests": [{"promt": "x"}]}, r"requests\[0\]\.promt: unknown key"),
        ({"seed": "many"}, "expected a whole number or a list"),
        ({"pipeline": None}, r"pipeline\.name: a value is required"),
    ],
)
def test_a_changed_record_is_refused(change: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        compose_saved({**saved(compose([])), **change}, [])


def test_nothing_of_a_record_is_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hidden")
    config = saved(compose([]))
    config["output"]["name"] = "${oc.env:SECRET}"
    assert compose_saved(config, []).output.name == "${oc.env:SECRET}"


def test_an_object_in_a_record_is_refused() -> None:
    with pytest.raises(ConfigError, match="kind object"):
        compose_saved({**saved(compose([])), "prompt": object()}, [])


def test_a_record_cannot_claim_a_layer_that_does_not_exist() -> None:
    spec = compose(["component_residency.vae=component-offload"])
    claimed = {"component_residency.vae": Origin("root", "x")}
    winner = compose_saved(saved(spec), [], claimed).placements["vae"].reasons[0]
    assert winner.origin.layer == "user"


def test_an_experiment_cannot_be_put_on_a_record() -> None:
    with pytest.raises(ConfigError, match="takes no experiment"):
        compose_saved(saved(compose([])), ["experiment=digits_grid"])
