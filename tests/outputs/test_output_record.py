"""The record of a run: what it holds, when it is written, what it hides, and what is refused when it is read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import framework
from framework.errors import ConfigError, Origin, OutputError
from framework.outputs import read_record as read_module
from framework.outputs.atomic import atomic_path
from framework.outputs.read_record import read_record
from framework.outputs.record import RecordSink
from framework.outputs.redact import redact, redact_text
from framework.runtime import events
from framework.spec import (
    ModelSpec,
    NumericsSpec,
    OutputSpec,
    PipelineSpec,
    Placement,
    Reason,
    RequestSpec,
    RunSpec,
)

PROMPT = "“一” @file ${x} \\ https://a:b@c\nand half an emoji \ud83d"
ORIGIN = Origin("user", "from the command line: seed=7")


@pytest.fixture
def spec() -> RunSpec:
    model = ModelSpec(source="embedded:digits")
    pipeline = PipelineSpec(name="digits", family="wan", backend="standard", model=model, components={}, stages={})
    reason = Reason("mode", "resident", ORIGIN, "component_residency.vae", won=True)
    return RunSpec(
        pipeline=pipeline,
        requests=(RequestSpec(prompt=PROMPT, seeds=(7,)), RequestSpec(prompt="two")),
        placements={"vae": Placement(component="vae", group="vae", mode="resident", reasons=(reason,))},
        numerics=NumericsSpec(),
        output=OutputSpec(),
        config={"prompt": PROMPT, "seed": 7, "output": {"name": None}},
        provenance={"seed": ORIGIN},
        notes=("a folding",),
    )


def run_of(folder: Path) -> list[events.Event]:
    return [
        events.RunStarted("digits", 1, "cpu"),
        events.ComponentLoaded("vae", "resident", "float32", 1024, 0.5),
        events.RequestStarted(0, 1, PROMPT, (7,)),
        events.UseFinished(0, "denoise", "transformer", "high_noise", 0.25),
        events.UseFinished(0, "denoise", "transformer", "low_noise", 0.5),
        events.StageFinished(0, "denoise", 1.0),
        events.OutputSaved(0, str(folder / "video.mp4"), "aa", "bb"),
        events.Note("a cache hit"),
        events.MemoryMeasured(0, 9, {"transformer": {"h2d": 4}}, {"vae": 2}),
        events.RequestFinished(0, 2.0),
    ]


@pytest.fixture
def sink(tmp_path: Path, spec: RunSpec) -> RecordSink:
    return RecordSink(tmp_path, spec, lambda: {"host_peak_bytes": 5})


def test_a_record_comes_back_as_it_was(sink: RecordSink, tmp_path: Path, spec: RunSpec) -> None:
    for event in [*run_of(tmp_path), events.RunFinished("done", 3.0)]:
        sink(event)
    record = read_record(tmp_path)
    assert record["schema"] == 1
    assert record["config"] == spec.config
    assert record["provenance"] == {"seed": {"layer": "user", "where": "from the command line: seed=7"}}
    assert record["requests"] == [
        {
            "prompt": PROMPT,
            "seed": [7],
            "timings": {"stages": {"denoise": 1.0}, "components": {"transformer": 0.75}, "total": 2.0},
            "outputs": [{"path": "video.mp4", "sha256": "aa", "frames_sha256": "bb"}],
            "artifacts": [],
            "memory": {
                "device_peak_bytes": 9,
                "moved_bytes": {"transformer": {"h2d": 4}},
                "loose_bytes": {"vae": 2},
                "host_peak_bytes": 5,
            },
        }
    ]
    assert (record["status"], record["error"]) == ("done", None)
    assert record["started"] <= record["ended"]


def test_the_plan_holds_placements_with_reasons_loads_and_notes(sink: RecordSink, tmp_path: Path) -> None:
    for event in run_of(tmp_path):
        sink(event)
    plan = read_record(tmp_path)["plan"]
    (vae,) = plan["placements"]
    assert (plan["device"], plan["notes"]) == ("cpu", ["a folding", "a cache hit"])
    assert vae["loaded"] == {"dtype": "float32", "size_bytes": 1024, "seconds": 0.5}
    assert vae["reasons"][0]["origin"]["where"] == ORIGIN.where


def test_versions_and_machine_are_named(sink: RecordSink, tmp_path: Path) -> None:
    record = read_record(tmp_path)
    assert record["versions"]["torch"].startswith("2.")
    assert record["versions"]["framework"] == framework.__version__  # known from a mere checkout too
    assert record["machine"]["num_cpus"] >= 1
    assert set(record) == {
        *("schema", "config", "provenance", "plan", "versions", "machine", "requests"),
        *("status", "error", "started", "ended"),
    }


def test_a_killed_run_leaves_a_record_that_says_interrupted(sink: RecordSink, tmp_path: Path) -> None:
    for event in run_of(tmp_path):
        sink(event)
    record = read_record(tmp_path)
    assert (record["status"], record["ended"]) == ("interrupted", None)
    assert record["requests"][0]["outputs"]


def test_a_run_killed_in_its_first_request_leaves_its_seed(sink: RecordSink, tmp_path: Path) -> None:
    for event in run_of(tmp_path)[:3]:
        sink(event)
    (request,) = read_record(tmp_path)["requests"]
    assert (request["prompt"], request["seed"]) == (PROMPT, [7])


def test_a_failed_run_keeps_its_error_and_what_it_had(sink: RecordSink, tmp_path: Path) -> None:
    for event in run_of(tmp_path)[:6]:
        sink(event)
    sink(events.RunFinished("failed", 1.0, "decode: 解码失败"))
    record = read_record(tmp_path)
    assert (record["status"], record["error"]) == ("failed", "decode: 解码失败")
    assert record["requests"][0]["timings"]["stages"] == {"denoise": 1.0}


def test_the_file_is_readable_utf8_with_nothing_beside_it(sink: RecordSink, tmp_path: Path) -> None:
    sink(events.RunFinished("done", 1.0))
    assert "“一” @file ${x}" in (tmp_path / "record.json").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_record_that_cannot_be_written_is_an_output_error(sink: RecordSink, tmp_path: Path) -> None:
    (tmp_path / "record.json").unlink()
    tmp_path.rmdir()
    with pytest.raises(OutputError, match=r"cannot write .*record\.json"):
        sink(events.RunFinished("done", 1.0))


def test_no_secret_reaches_the_file(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_environmentsecret0000")
    source = "https://user:sesame@hub.example/model?token=sesame"
    config = {"pipeline": {"model": {"source": source}, "args": {"api_key": "sesame", "hub_token": ["sesame"]}}}
    provenance = {
        "pipeline.model.source": Origin("user", f"from the command line: pipeline.model.source={source}"),
        "pipeline.args.api_key": Origin("user", "from the command line: pipeline.args.api_key=sesame"),
    }
    sink = RecordSink(tmp_path, replace(spec, config=config, provenance=provenance, notes=("Bearer sesamesesame",)))
    sink(events.Note("read with hf_sesamesesamesesame1"))
    sink(events.RunFinished("failed", 1.0, f"cannot fetch {source}"))
    text = (tmp_path / "record.json").read_text(encoding="utf-8")
    assert "sesame" not in text
    assert "environmentsecret" not in text
    assert "https://hub.example/model" in text


def test_settings_that_only_sound_secret_are_kept() -> None:
    config = {"tokenizer": "t", "max_tokens": 5, "max_sequence_length": 9, "token": True, "secret": None, "seed": 1}
    assert redact(config) == config


def test_an_address_without_a_user_is_kept() -> None:
    line = "see https://example.org/a@b and mail a@b.c, key=value"
    assert redact_text(line) == line


def write(folder: Path, text: str | bytes) -> Path:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "record.json").write_bytes(content)
    return folder


GOOD: dict[str, Any] = {"schema": 1, "config": {}, "requests": []}


def test_the_file_itself_may_be_named(tmp_path: Path) -> None:
    assert read_record(write(tmp_path, json.dumps(GOOD)) / "record.json") == GOOD


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"schema": 1, "config": {"seed": 1, "seed": 2}, "requests": []}', "the key 'seed' appears twice"),
        ("[]", "expected a mapping"),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"schema": NaN}', "NaN is not a number"),
        ('{"schema": ' + "9" * 5000 + "}", "is not valid JSON"),
        (b"\xff\xfe{}", "is not UTF-8 at byte 0"),
        ("{}", "has schema None; this version reads schema 1"),
        (json.dumps(GOOD | {"schema": 2}), "has schema 2"),
        (json.dumps(GOOD | {"schema": True}), "has schema True"),
        (json.dumps(GOOD | {"config": []}), "has no config"),
        (json.dumps(GOOD | {"requests": [1]}), "has no list of requests"),
    ],
)
def test_a_broken_record_is_refused_in_one_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_record(write(tmp_path, text))
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"--from: '{tmp_path / 'record.json'}' ")
    assert "\n" not in str(caught.value)


def test_a_record_that_is_too_large_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_module, "MAX_BYTES", 10)
    with pytest.raises(ConfigError, match="is larger than"):
        read_record(write(tmp_path, json.dumps(GOOD)))


def test_a_folder_without_a_record_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist; give the folder of a run, which holds record\.json"):
        read_record(tmp_path)


@pytest.mark.parametrize("stop", [OSError("full"), KeyboardInterrupt()])
def test_an_atomic_write_that_stops_leaves_the_old_file(tmp_path: Path, stop: BaseException) -> None:
    target = tmp_path / "x.json"
    target.write_text("old")

    def write_half() -> None:
        with atomic_path(target) as partial:
            partial.write_text("half")
            raise stop

    with pytest.raises(type(stop)):
        write_half()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.json", "old")]


def test_an_atomic_write_replaces_the_old_file_at_its_end(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    target.write_text("old")
    with atomic_path(target) as partial:
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def test_a_continued_run_takes_over_what_was_done_and_says_when(spec: RunSpec, tmp_path: Path) -> None:
    first = RecordSink(tmp_path, spec)
    (tmp_path / "artifacts").mkdir()
    kept = tmp_path / "artifacts" / "denoise.safetensors"
    kept.write_bytes(b"x")
    gone = tmp_path / "artifacts" / "denoise.step2.safetensors"
    first(events.RequestStarted(0, 1, "a", (7,)))
    for path, step in ((gone, 2), (kept, None)):
        first(events.ArtifactSaved(0, "denoise", step, str(path), "aa", 1))
    earlier = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    second = RecordSink(tmp_path, spec, earlier=earlier)
    second(events.OutputSaved(0, str(tmp_path / "video.mp4"), "aa", "bb"))
    second(events.OutputSaved(0, str(tmp_path / "video.mp4"), "cc", "bb"))
    second.finish("done")
    found = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert found["started"] == earlier["started"]
    assert len(found["resumed"]) == 1
    request, *_ = found["requests"]
    assert request["seed"] == [7]
    assert [entry["path"] for entry in request["artifacts"]] == ["artifacts/denoise.safetensors"]
    assert [entry["sha256"] for entry in request["outputs"]] == ["cc"]
