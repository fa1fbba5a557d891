"""`numerics`: what it may say, what is printed, and what is refused before anything is loaded."""

import pytest

from framework.compose import compose
from framework.compose.numerics import numerics_line
from framework.errors import ConfigError
from framework.spec import NumericsSpec, RunSpec

CACHE = "numerics.step_cache"


def composed(*words: str) -> RunSpec:
    return compose(["pipeline=wan2", *words])


def message(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        composed(*words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("numerics.vae_tiling=true", "numerics.vae_tiling: the VAE works in tiles and blends them"),
        ("numerics.vae_slicing=true", "numerics.vae_slicing: the VAE works on one output at a time"),
        ("numerics.attention=_native_math", "numerics.attention: _native_math (torch's plain formula, most memory)"),
        ("numerics.attention=sage", "numerics.attention: sage (SageAttention), which computes in fewer bits"),
        ("numerics.compile=blocks", "numerics.compile: blocks are compiled"),
        ("numerics.deterministic=true", "numerics.deterministic: only kernels that always compute in the same order"),
        (f"{CACHE}=first_block", "numerics.step_cache: first_block leaves out all blocks but the first"),
    ],
)
def test_what_may_change_the_picture_says_so(word: str, line: str) -> None:
    found = [note for note in composed(word).notes if note.startswith(line)]
    assert len(found) == 1
    assert "change the picture" in found[0] or "changes the picture" in found[0]


def test_a_step_cache_is_called_lossy() -> None:
    assert any("lossy" in note for note in composed(f"{CACHE}=taylorseer").notes)


def test_the_defaults_say_nothing() -> None:
    assert not [note for note in composed("numerics.attention=sdpa").notes if note.startswith("numerics")]
    assert composed().numerics == NumericsSpec()


def test_one_line_has_it_all_and_auto_is_off_until_the_planner_decides() -> None:
    assert numerics_line(composed("numerics.vae_slicing=false", f"{CACHE}=fbcache").numerics) == (
        "numerics: vae_tiling auto (off), vae_slicing off, attention sdpa, compile off, step_cache first_block, "
        "deterministic off"
    )


def test_options_of_a_cache_come_as_a_map_or_key_by_key() -> None:
    whole = composed(f"{CACHE}={{method: first_block, options: {{threshold: 0.1}}}}")
    single = composed(f"{CACHE}.method=first_block", f"{CACHE}.options.threshold=0.1")
    assert whole.numerics == single.numerics
    assert whole.numerics.step_cache is not None
    assert whole.numerics.step_cache.options == (("threshold", 0.1),)


def test_the_config_keeps_what_was_said_and_the_identity_differs() -> None:
    spec = composed(f"{CACHE}=first_block")
    assert spec.config["numerics"]["step_cache"] == "first_block"
    assert repr(spec.numerics) != repr(composed().numerics)


def test_a_wrong_option_is_refused_with_its_place() -> None:
    word = f"{CACHE}={{method: first_block, options: {{thresold: 0.1}}}}"
    assert message(word) == (
        f"(from the command line: {word}): numerics.step_cache.options.thresold: first_block has no option 'thresold'; "
        "did you mean 'threshold'?"
    )
    assert "unknown key 'metod'" in message(f"{CACHE}={{metod: first_block}}")


def test_a_backend_is_checked_with_the_device_that_is_named() -> None:
    assert "flash cannot be used on cpu; it computes on cuda" in message("numerics.attention=flash", "device=cpu")
    assert composed("numerics.attention=flash", "device=cuda").numerics.attention == "flash"


def test_a_kernel_from_the_hub_needs_trust() -> None:
    assert "code from elsewhere" in message("numerics.attention=flash_hub")
    trusted = composed("numerics.attention=flash_hub", "pipeline.model.trust_remote_code=true")
    assert trusted.numerics.attention == "flash_hub"
