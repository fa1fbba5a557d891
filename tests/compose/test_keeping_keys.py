"""`checkpoint` and `recover`: what they become, and what is refused by name."""

import pytest

from framework.compose import compose
from framework.errors import ConfigError
from framework.spec import CheckpointSpec, RecoverSpec


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], CheckpointSpec()),
        (["checkpoint.stages=all"], CheckpointSpec(stages="all")),
        (["checkpoint.stages=no"], CheckpointSpec(stages="off")),
        (["checkpoint.stages=[denoise,decode]"], CheckpointSpec(stages=("denoise", "decode"))),
        (["checkpoint.every_steps=5"], CheckpointSpec(every_steps=5)),
    ],
)
def test_what_is_kept(words: list[str], expected: CheckpointSpec) -> None:
    assert compose(words).checkpoint == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], RecoverSpec(max_notches=3, allow_numerics=False)),
        (["recover=off"], None),
        (["recover=false"], None),
        (["recover.max_notches=0"], RecoverSpec(max_notches=0)),
        (["recover.allow_numerics=true"], RecoverSpec(allow_numerics=True)),
    ],
)
def test_what_may_change_when_memory_runs_out(words: list[str], expected: RecoverSpec | None) -> None:
    assert compose(words).recover == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["checkpoint.stages=denoise"],
            "unknown choice 'denoise'; a stage's name goes in a list: checkpoint.stages=[den",
        ),
        (["checkpoint.stages=al"], "unknown choice 'al'; did you mean 'all'?"),
        (["checkpoint.stages=[denoize]"], "there is no stage 'denoize'; did you mean 'denoise'?"),
        (["checkpoint.stages=[export]"], "stage 'export' writes nothing that could be kept"),
        (["checkpoint.every_steps=2", "numerics.step_cache=first_block"], "step_cache keeps results between steps"),
        (["recover.max_notches=-1"], "recover"),
    ],
)
def test_what_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(words)
    assert said in str(caught.value)
    assert "from the command line" in str(caught.value)
