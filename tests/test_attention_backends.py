"""The table of attention backends: complete against diffusers, used for every check, printed in the documentation."""

from pathlib import Path

import pytest

from framework.attention_backends import BACKENDS, attention_problems, attention_table, find_backend, is_default

PAGE = Path(__file__).parents[1] / "docs" / "numerics.md"


def problems(name: str, device: str | None = None, trusted: bool = False, packages: bool = False) -> list[str]:
    return [str(found) for found in attention_problems(name, device, trusted=trusted, packages=packages)]


def test_the_page_has_the_table_as_it_is() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- attention -->\n")
    assert rest.partition("<!-- end of attention -->")[0].strip() == attention_table()


def test_the_names_are_those_of_diffusers() -> None:
    from diffusers.models import attention_dispatch as theirs

    assert set(BACKENDS) == {backend.value for backend in theirs.AttentionBackendName}
    fetched = {backend.value for backend in theirs._HUB_KERNELS_REGISTRY}
    assert {name for name, backend in BACKENDS.items() if backend.remote} == fetched


def test_what_needs_a_package_is_what_diffusers_asks_one_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffusers.models import attention_dispatch as theirs

    for name in [name for name in vars(theirs) if name.startswith("_CAN_USE_") and "FLEX" not in name]:
        monkeypatch.setattr(theirs, name, False)
    monkeypatch.setattr(theirs, "is_kernels_available", lambda: False)
    for name, backend in BACKENDS.items():
        refused = False
        try:
            theirs._check_attention_backend_requirements(theirs.AttentionBackendName(name))
        except RuntimeError:
            refused = True
        assert refused == bool(backend.package), name


def test_spellings_fold_and_sdpa_is_the_default() -> None:
    assert is_default("sdpa")
    assert is_default("Native")
    found = find_backend("-Native-Math")
    assert found is not None
    assert found.name == "_native_math"
    assert find_backend("eager") is None


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    assert problems("sagee") == ["numerics.attention: unknown attention backend 'sagee'; did you mean 'sage'?"]


def test_a_device_without_the_kernel_is_refused() -> None:
    assert problems("flash", "sim") == ["numerics.attention: flash cannot be used on sim; it computes on cuda"]
    assert problems("_native_npu", "cuda") == [
        "numerics.attention: _native_npu cannot be used on cuda; no device of this version has it"
    ]
    assert problems("flash", None) == problems("flash", "cuda") == []


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert problems("sage", "cuda", packages=True) == [
        "numerics.attention: sage needs the package 'sageattention', which is not installed; pip install sageattention"
    ]
    assert problems("native", "cuda", packages=True) == []


def test_a_kernel_from_the_hub_has_to_be_allowed() -> None:
    assert "pipeline.model.trust_remote_code=true" in problems("flash_hub", "cuda")[0]
    assert problems("flash_hub", "cuda", trusted=True) == []


def test_every_device_of_the_table_is_one_that_there_is() -> None:
    from framework.platforms import PLATFORMS

    assert {device for backend in BACKENDS.values() for device in backend.devices} <= set(PLATFORMS.names())
