"""The one table of methods: complete, used for every check, and printed in the documentation."""

import importlib
from pathlib import Path

import pytest

from framework.quantization import METHODS, Quantization, capability_problems, capability_table
from framework.registry import MODES

PAGE = Path(__file__).parents[1] / "docs" / "quantization.md"


def problems(name: str, mode: str, device: str | None = None, packages: bool = False) -> list[str]:
    quantized = {"transformer": Quantization(method=METHODS[name], key="numerics.quantize.transformer")}
    return [str(found) for found in capability_problems(quantized, {"transformer": mode}, device, packages=packages)]


def test_the_page_has_the_table_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- table -->\n")
    assert rest.partition("<!-- end of table -->")[0].strip() == capability_table()


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_a_refused_mode_is_one_that_there_is_and_resident_always_works(method: object) -> None:
    refused = METHODS[method.name].refused  # type: ignore[attr-defined]
    assert set(refused) <= set(MODES) - {"resident"}


def test_a_refused_mode_is_one_line_with_the_key_the_reason_and_what_works() -> None:
    assert problems("bnb-nf4", "layerwise-offload") == [
        "numerics.quantize.transformer: 'transformer' cannot do layerwise-offload with bnb-nf4: its weights keep their "
        "scales in attributes, which cannot travel with them; resident would work"
    ]
    assert problems("bnb-nf4", "resident") == []
    assert problems("torchao-int8", "layerwise-offload") == []


def test_a_device_without_kernels_is_refused() -> None:
    assert problems("bnb-nf4", "resident", "cpu") == [
        "numerics.quantize.transformer: bnb-nf4 cannot be used on cpu; it computes on cuda"
    ]
    assert problems("bnb-nf4", "resident", "cuda") == []


def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert problems("torchao-fp8", "resident", packages=True) == [
        "numerics.quantize.transformer: torchao-fp8 needs the package 'torchao', which is not installed; "
        "pip install framework[torchao]"
    ]


def test_every_extra_is_one_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {method.extra for method in METHODS.values() if method.extra} <= set(project["optional-dependencies"])


def test_every_method_is_carried_out_by_somebody() -> None:
    quantize = importlib.import_module("framework.loading.quantize")
    assert set(METHODS) == set(quantize.LIBRARY_CONFIGS) | set(quantize.OWN)
