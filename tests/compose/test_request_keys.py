"""A request key that nothing in the pipeline reads is refused by name, one without effect gets a line."""

import json
from pathlib import Path

import pytest

from framework.compose.composer import compose
from framework.compose.request_keys import EVERY_RUN
from framework.errors import ConfigError
from framework.registry import FAMILIES, STAGES
from framework.spec import RequestSpec


@pytest.mark.parametrize("key", ["image", "video", "mask", "strength"])
def test_a_key_that_no_stage_reads_is_refused_with_what_is_read(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([f"request.{key}=1"] if key == "strength" else [f"request.{key}=x.png"])
    (problem,) = caught.value.problems
    assert problem.key == f"request.{key}"
    assert problem.where.startswith(f"from the command line: request.{key}=")
    assert "family wan reads fps, guidance_scale, guidance_scale_2, height" in problem.reason


def test_guidance_of_a_second_expert_needs_the_second_expert() -> None:
    assert compose(["request.guidance_scale_2=3"]).requests[0].guidance_scale_2 == 3.0
    for key in ("request.guidance_scale_2", "pipeline.defaults.request.guidance_scale_2"):
        with pytest.raises(ConfigError, match=f"{key}: it is for 'transformer_2', which this pipeline does not have"):
            compose(["pipeline=wan21_14b", f"{key}=3"])


def test_each_line_of_a_file_of_requests_is_looked_at(tmp_path: Path) -> None:
    lines = [{"prompt": "a"}, {"mask": "m.png"}, {"fps": 8, "num_frames": 1}, {"image": "i.png"}]
    (tmp_path / "r.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    word = f"requests=@{tmp_path / 'r.jsonl'}"
    with pytest.raises(ConfigError) as caught:
        compose([word])
    assert [str(problem).partition(": nothing")[0] for problem in caught.value.problems] == [
        f"{tmp_path}/r.jsonl:2: mask",
        f"{tmp_path}/r.jsonl:4: image",
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(json.dumps(line) for line in lines[::2]))
    (note,) = compose([word]).notes
    assert note == f"{tmp_path}/r.jsonl:2: fps: no effect: one frame is a picture"


def test_a_frame_rate_for_one_frame_gets_a_line_where_the_user_gave_it() -> None:
    (note,) = compose(["request.fps=8", "request.num_frames=1"]).notes
    assert note == "(from the command line: request.fps=8): request.fps: no effect: one frame is a picture"
    assert compose(["request.num_frames=1"]).notes == ()
    assert compose(["request.fps=8"]).notes == ()


def test_a_negative_prompt_below_guidance_gets_a_line_where_the_user_gave_it() -> None:
    (note,) = compose(["negative_prompt=a one", "request.guidance_scale=1"]).notes
    reason = "no effect: guidance_scale is 1, and a negative prompt is read above 1 only"
    assert note == f"(from the command line: negative_prompt=a one): negative_prompt: {reason}"
    assert compose(["negative_prompt=a one", "request.guidance_scale=1.1"]).notes == ()
    assert compose(["negative_prompt=", "request.guidance_scale=1"]).notes == ()
    assert compose(["pipeline.defaults.request.negative_prompt=a one", "request.guidance_scale=1"]).notes == ()


def test_a_negative_prompt_of_a_line_is_held_against_the_guidance_of_that_line(tmp_path: Path) -> None:
    lines = [{"negative_prompt": "x"}, {"guidance_scale": 0}, {"negative_prompt": "y", "guidance_scale": 1}]
    (tmp_path / "r.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    (note,) = compose([f"requests=@{tmp_path / 'r.jsonl'}"]).notes
    assert note.startswith(f"{tmp_path}/r.jsonl:3: negative_prompt: no effect: guidance_scale is 1,")


def test_a_family_may_read_negative_prompts_at_any_guidance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FAMILIES.get("wan"), "negative_prompt_above")
    assert compose(["negative_prompt=a one", "request.guidance_scale=1"]).notes == ()


def test_a_stage_may_read_what_its_family_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STAGES.get("decode"), "request_keys", ("strength",), raising=False)
    assert compose(["request.strength=0.5"]).requests[0].strength == 0.5


def test_a_family_that_does_not_say_what_it_reads_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FAMILIES.get("wan"), "request_keys")
    assert compose(["request.strength=0.5"]).requests[0].strength == 0.5


def test_every_built_in_family_says_what_it_reads_in_keys_of_a_request() -> None:
    keys = set(RequestSpec.__dataclass_fields__)
    assert keys >= EVERY_RUN - {"seed", "loras_scale"}
    for name in FAMILIES.names():
        assert set(FAMILIES.get(name).request_keys) <= keys
