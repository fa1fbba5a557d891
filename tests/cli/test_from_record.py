"""What `run --from` takes from a record and what it does not; where a wrong output name is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.commands.from_record import compare_frames, spec_from_record
from framework.compose import compose
from framework.errors import ConfigError

OUTSIDE = "output.name: '../x' leads outside the output root"


def record_of(*words: str, **parts: Any) -> dict[str, Any]:
    config = json.loads(json.dumps(compose(list(words)).config))
    return {"config": config, "requests": [], **parts}


def test_a_record_does_not_say_where_results_go() -> None:
    """Case SE-05 in a resumed record: neither its root nor its name is used, and the line says so."""
    spec = spec_from_record(record_of("output.root=/elsewhere", "output.name=taken"), [])
    assert (str(spec.output.root), spec.output.name) == ("outputs", None)
    assert any("'/elsewhere' is not used" in note for note in spec.notes)


def test_the_command_line_says_where_a_repeated_run_goes() -> None:
    spec = spec_from_record(record_of("output.root=/elsewhere"), ["output.root=here", "output.name=again"])
    assert (str(spec.output.root), spec.output.name, spec.notes) == ("here", "again", ())


@pytest.mark.parametrize("key", ["trust_remote_code", "allow_pickle"])
def test_a_record_cannot_trust_its_model(key: str) -> None:
    record = record_of(f"pipeline.model.{key}=true")
    with pytest.raises(ConfigError, match=f"a record cannot say this; if you trust the model, add .*{key}=true"):
        spec_from_record(record, [])
    assert getattr(spec_from_record(record, [f"pipeline.model.{key}=true"]).pipeline.model, key) is True
    assert getattr(spec_from_record(record, [f"pipeline.model.{key}=false"]).pipeline.model, key) is False


@pytest.mark.parametrize(("seeds", "kept"), [([7], (7,)), ([-1], None), ([2**63], None), ([True], None), ("7", None)])
def test_only_a_seed_that_could_have_been_drawn_is_repeated(seeds: Any, kept: tuple[int, ...] | None) -> None:
    assert spec_from_record(record_of(requests=[{"seed": seeds}]), []).requests[0].seeds == kept


def test_a_place_in_a_record_cannot_steer_a_terminal() -> None:
    provenance = {"seed": {"layer": "user", "where": "x\n\x1b[31my"}}
    with pytest.raises(ConfigError) as caught:
        spec_from_record(record_of(provenance=provenance) | {"config": {**record_of()["config"], "seed": "many"}}, [])
    assert "first set at x??[31my" in str(caught.value)
    assert str(caught.value).isprintable()


CLIPS = [
    {"path": "video-0.mp4", "frames_sha256": "a"},
    {"path": "video-1.mp4", "frames_sha256": "b"},
    {"path": "sheet.png", "frames_sha256": "ab"},
]


@pytest.mark.parametrize(
    ("saved", "outputs", "line"),
    [
        ({"a", "b"}, CLIPS, "the frames equal the recorded ones"),
        ({"a", "other", "ab"}, CLIPS, "request 1: the frames differ from the recorded ones"),
        ({"a"}, [], "the record holds no frames to compare with"),
        ({"a"}, "x", "the record holds no frames to compare with"),
        ({"a"}, [{"frames_sha256": ["a"]}], "the record holds no frames to compare with"),
    ],
)
def test_frames_are_equal_only_when_every_clip_is(saved: set[str], outputs: Any, line: str) -> None:
    assert compare_frames({0: saved}, {"requests": [{"outputs": outputs}]}) == line


@pytest.mark.parametrize("words", [["run", "--resume"], ["run", "--from"], ["verify", "--from"]])
@pytest.mark.parametrize("flag", ["--config-dir", "--config-name", "--cfg", "--info"])
def test_a_flag_about_yaml_files_is_refused_where_a_record_is_the_config(
    words: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = "config" if flag == "--info" else "job"
    assert main([*words, "folder", flag, given]) == 2
    said = f"{flag}: {words[1]} takes the config from a record and reads no YAML files; remove it"
    assert capsys.readouterr().err.strip() == said


@pytest.mark.parametrize("words", [["validate"], ["run", "--dry-run"], ["run"]])
def test_an_unsafe_name_is_found_at_once_with_its_place(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "output.name=../x"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"(from the command line: output.name=../x): {OUTSIDE}")
    assert "importing" not in captured.err


def test_a_size_in_a_file_of_requests_is_placed_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two.jsonl"
    file.write_text('{"prompt": "a one"}\n{"prompt": "a two", "height": 33}\n')
    assert main(["run", f"requests=@{file}", f"output.root={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert "requests[1].height: 33 is no multiple of 16" in error
    assert str(file) in error
    assert "digits.yaml" not in error


def test_a_frame_rate_that_no_video_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "request.fps=100000000000000000000"]) == 2
    assert "request.fps: must be at most 1000" in capsys.readouterr().err
