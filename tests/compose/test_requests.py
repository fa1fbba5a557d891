"""Requests: defaults below, the run above them, lines of a file on top; seeds and outputs."""

import json
from pathlib import Path

import pytest

from framework.compose.composer import compose, compose_saved
from framework.errors import ConfigError


def request_file(folder: Path, *lines: str) -> str:
    (folder / "r.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"requests=@{folder / 'r.jsonl'}"


def test_the_pipeline_speaks_where_the_run_does_not() -> None:
    request = compose(["request.height=64"]).requests[0]
    assert (request.height, request.width, request.num_inference_steps, request.guidance_scale) == (64, 32, 16, 3.0)
    assert (request.prompt, request.negative_prompt, request.seeds) == ("a seven moving right", "", None)


def test_a_line_of_a_file_speaks_over_the_run(tmp_path: Path) -> None:
    words = request_file(tmp_path, '{"prompt": "a one", "height": 48}', "", '{"seed": 5}')
    first, second = compose([words, "request.height=64", "seed=1"]).requests
    assert (first.prompt, first.height, first.seeds) == ("a one", 48, (1,))
    assert (second.prompt, second.height, second.seeds) == ("a seven moving right", 64, (5,))


def test_what_every_line_of_a_file_beats_is_told(tmp_path: Path) -> None:
    lines = ('{"prompt": "a one", "seed": 1, "height": 48}', '{"prompt": "a two", "seed": 2}')
    notes = compose([request_file(tmp_path, *lines), "prompt=a three", "seed=3", "request.height=64"]).notes
    told = "no effect: every line of requests has its own"
    assert [note for note in notes if told in note] == [
        f"(from the command line: prompt=a three): prompt: {told}",
        f"(from the command line: seed=3): seed: {told}",
    ]


def test_what_one_line_takes_from_the_run_is_not_told(tmp_path: Path) -> None:
    words = request_file(tmp_path, '{"prompt": "a one"}', '{"seed": 2}')
    assert compose([words, "prompt=a three", "request.width=64"]).notes == ()


def test_one_seed_counts_up_over_the_outputs() -> None:
    assert compose(["seed=7", "request.num_outputs=3"]).requests[0].seeds == (7, 8, 9)


def test_a_list_of_seeds_says_the_number_of_outputs() -> None:
    request = compose(["seed=[4,2]"]).requests[0]
    assert (request.seeds, request.num_outputs) == ((4, 2), 2)


def test_no_seed_is_drawn_later() -> None:
    assert compose(["request.num_outputs=2"]).requests[0].seeds is None


def test_a_whole_number_written_as_a_fraction_is_one() -> None:
    request = compose(["request.num_inference_steps=1e1"]).requests[0]
    assert (request.num_inference_steps, type(request.num_inference_steps)) == (10, int)


def test_a_pipeline_without_a_prompt_asks_for_one() -> None:
    with pytest.raises(ConfigError, match=r"prompt: a prompt is required; set prompt=TEXT"):
        compose(["pipeline.defaults.request.prompt=x", "~pipeline.defaults.request.prompt"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": ', "not valid JSON: expecting value"),
        ('["a"]', "each line holds one JSON object"),
        ('{"promt": "a"}', "promt: unknown key 'promt'; did you mean 'prompt'?"),
        ('{"height": 1, "height": 2}', "not valid JSON: duplicate key 'height'"),
        ('{"guidance_scale": NaN}', "not valid JSON: NaN is not a number"),
        ('{"height": "tall"}', "height: expected a whole number, got text 'tall'"),
        ('{"prompt": 3}', "prompt: expected text, got the number 3; put it in quotes"),
        ('{"_target_": "os.system"}', "_target_: unknown key '_target_'"),
        ("[" * 5000, "not valid JSON"),
    ],
)
def test_a_wrong_line_is_named_with_file_and_line(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    request_file(tmp_path, '{"prompt": "fine"}', line)
    with pytest.raises(ConfigError) as caught:
        compose(["requests=@r.jsonl"])
    assert str(caught.value).startswith(f"r.jsonl:2: {message}")


def test_a_prompt_that_is_no_text_is_refused_before_a_tokenizer_sees_it(tmp_path: Path) -> None:
    words = request_file(tmp_path, '{"prompt": "half \\ud83d"}')
    with pytest.raises(
        ConfigError, match=r"r.jsonl:1: prompt: holds half of a character at position 6, which is no text"
    ):
        compose([words])
    whole = request_file(tmp_path, '{"prompt": "whole \\ud83d\\ude00"}')
    assert compose([whole]).requests[0].prompt == "whole \U0001f600"


def test_all_wrong_lines_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([request_file(tmp_path, '{"a": 1}', '{"b": 1}')])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(("content", "message"), [(b"", "holds no request"), (b"\xff", "is not UTF-8")])
def test_a_file_without_requests_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        compose([f"requests=@{tmp_path / 'r.jsonl'}"])


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\(from the command line: requests=@none\.jsonl\): requests: cannot read"):
        compose(["requests=@none.jsonl"])


def test_the_config_keeps_the_requests_themselves(tmp_path: Path) -> None:
    spec = compose([request_file(tmp_path, json.dumps({"prompt": "a one"}))])
    assert spec.config["requests"] == [{"prompt": "a one"}]


def test_what_does_not_fit_together_in_a_line_is_named_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([request_file(tmp_path, '{"prompt": "a"}', "", '{"seed": [1, 2], "num_outputs": 3}')])
    line = f"{tmp_path}/r.jsonl:3: seed: 2 seeds for 3 outputs; give one seed for each output"
    assert str(caught.value) == line


def test_a_request_of_a_record_is_named_by_its_number() -> None:
    saved = {**compose([]).config, "requests": [{}, {"seed": [1, 2], "num_outputs": 3}]}
    with pytest.raises(ConfigError, match=r"saved config.*: requests\[1\]\.seed: 2 seeds for 3 outputs"):
        compose_saved(saved, [])


def adapters(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).write_bytes(b"")
    return "loras=[" + ",".join(f"{{source: {folder / name}}}" for name in names) + "]"


def test_a_line_says_how_strong_the_adapters_are_in_it(tmp_path: Path) -> None:
    lines = ["{}", '{"loras_scale": 0.5}', '{"loras_scale": [0, 2]}']
    spec = compose([request_file(tmp_path, *lines), adapters(tmp_path, "a.safetensors", "b.safetensors")])
    assert [request.lora_scales for request in spec.requests] == [None, (0.5, 0.5), (0.0, 2.0)]


@pytest.mark.parametrize(
    ("line", "words", "message"),
    [
        ('{"loras_scale": 1}', (), "loras_scale: the run has no adapters; set loras"),
        ('{"loras_scale": [1, 2]}', ("a.safetensors",), "loras_scale: 2 strengths for 1 adapter; give one for each"),
        ('{"loras_scale": []}', ("a.safetensors",), "loras_scale: "),
    ],
)
def test_strengths_that_fit_no_adapter_are_refused(
    line: str, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([request_file(tmp_path, line), *([adapters(tmp_path, *words)] if words else [])])
    assert f"r.jsonl:1: {message}" in str(caught.value)
