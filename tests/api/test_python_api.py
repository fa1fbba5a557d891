"""The package as a library: results, sessions that stay loaded, placements that change, callbacks; and its page."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import framework
from framework.api.configs import spec_of
from framework.paths import ROOT
from framework.runtime import events

WORDS = ["pipeline=digits", "device=sim", "hardware=rtx_3060_12gb", "request.num_inference_steps=2"]
ASKED = {"prompt": "@a ${three} moving left", "seed": 4}
PAGE = ROOT / "docs" / "python-api.md"


@pytest.fixture(scope="module")
def session(one_thread: None) -> Iterator[framework.Session]:
    with framework.open(WORDS) as opened:
        yield opened


@pytest.fixture(scope="module")
def first(session: framework.Session) -> framework.Result:
    """A request with everything resident, the first of the session."""
    return session.run(outputs="arrays", **ASKED)  # type: ignore[arg-type]


def test_a_result_has_exact_frames_the_record_and_the_timeline(first: framework.Result) -> None:
    (output,) = first.outputs
    assert output.array is not None
    assert output.array.shape == (9, 32, 32, 3)
    assert output.array.dtype == np.float32
    assert output.seed == 4
    request = first.record["requests"][0]
    assert first.record["status"] == "done"
    assert request["prompt"] == ASKED["prompt"], "a text is literal"
    assert request["outputs"][0]["frames_sha256"] == output.frames_sha256
    assert [one.name for one in first.timeline.of("stage")] == ["encode_prompt", "denoise", "decode", "export"]
    assert [one.name for one in first.timeline.of("step")] == ["step 1", "step 2"]
    assert all(0 <= one.start_s <= one.end_s <= first.seconds for one in first.timeline.intervals)
    assert first.timeline.device_peak_bytes
    assert first.timeline.memory


def test_weights_stay_between_requests_and_move_when_they_are_told_to(
    session: framework.Session, first: framework.Result
) -> None:
    heard: list[events.Event] = []
    assert {one.mode for one in session.components().values()} == {"resident"}
    session.change("component_residency.dit=layerwise-offload", "component_residency.vae=component-offload")
    there = session.components()
    assert there["vae"].idle_bytes == 0 < there["vae"].used_bytes
    assert there["transformer"].used_bytes < there["transformer"].size_bytes
    second = session.run(outputs="arrays", on_event=heard.append, **ASKED)  # type: ignore[arg-type]
    assert not [event for event in heard if isinstance(event, events.ComponentLoading)], "nothing is loaded again"
    assert second.outputs[0].frames_sha256 == first.outputs[0].frames_sha256
    assert second.timeline.moved_bytes.keys() == {"transformer", "transformer_2", "vae"}
    session.change("component_residency.dit=resident", "component_residency.vae=resident")
    assert session.run(**ASKED).timeline.moved_bytes == {}  # type: ignore[arg-type]


def test_a_callback_hears_steps_and_may_end_the_request_and_the_session_goes_on(
    session: framework.Session, first: framework.Result
) -> None:
    heard: list[tuple[int, int, tuple[int, ...]]] = []

    def look(step: framework.StepDone) -> None:
        heard.append((step.step, step.num_steps, tuple(step.values.shape)))
        raise framework.Interrupted("enough")

    with pytest.raises(framework.Interrupted, match="enough"):
        session.run(on_step=look, **ASKED)  # type: ignore[arg-type]
    assert heard == [(1, 2, (1, 8, 3, 8, 8))]
    loads: list[events.Event] = []
    after = session.run(on_event=loads.append, **ASKED)  # type: ignore[arg-type]
    assert after.outputs[0].frames_sha256 == first.outputs[0].frames_sha256
    assert not [event for event in loads if isinstance(event, events.ComponentLoading)]
    assert after.image.size == (32, 32)
    assert len(after.outputs[0].images) == 9


def test_a_callback_that_breaks_is_told_with_the_step_it_heard_of(session: framework.Session) -> None:
    def broken(step: framework.StepDone) -> None:
        raise RuntimeError("a plot without an axis")

    with pytest.raises(framework.FrameworkError, match=r"failed in step 1 of 2.*a plot without an axis"):
        session.run(on_step=broken, **ASKED)  # type: ignore[arg-type]


def test_what_a_session_starts_from_keeps_its_places() -> None:
    again = spec_of(spec_of([*WORDS, "prompt=a"]), ["seed=5"])
    places = {key: origin.where for key, origin in spec_of([*WORDS, "prompt=a", "seed=5"]).provenance.items()}
    assert {key: origin.where for key, origin in again.provenance.items()} == places


def test_a_change_that_is_refused_changes_nothing(session: framework.Session) -> None:
    before = session.spec
    with pytest.raises(framework.ConfigError, match="did you mean"):
        session.change("component_residency.transformr=resident")
    assert session.spec is before


def test_files_go_to_a_run_folder_that_can_be_repeated(session: framework.Session, tmp_path: Path) -> None:
    place = (f"output.root={tmp_path}", "output.name=saved", "output.sheet=false")
    saved = session.run(*place, outputs="paths", **ASKED)  # type: ignore[arg-type]
    assert saved.folder == tmp_path / "saved"
    assert [path.name for path in saved.paths] == ["video.mp4"]
    assert {"record.json", "log.txt", "report.html"} <= {path.name for path in saved.folder.iterdir()}


def test_a_form_that_is_not_there_and_one_text_as_a_config_are_refused() -> None:
    with pytest.raises(framework.ConfigError, match="there is no form 'pictures'"):
        framework.run(WORDS, prompt="a", outputs="pictures")  # type: ignore[arg-type]
    with pytest.raises(framework.ConfigError, match="there is no form 'None'"):
        framework.run(WORDS, prompt="a", outputs=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("take", [framework.run, framework.compose, framework.plan, framework.open])
@pytest.mark.parametrize(
    ("config", "said"),
    [("seed=1", "not one text"), ({"seed": 1}, "not dict"), (None, "not NoneType"), (["seed=1", 3], "3 is no text")],
)
def test_what_is_no_list_of_words_is_refused_in_one_line(take: Callable[[Any], Any], config: Any, said: str) -> None:
    with pytest.raises(TypeError, match=rf"a config is a list of words such as \['pipeline=digits'\].*{said}$"):
        take(config)


def test_a_run_that_failed_leaves_the_card_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path / "cache"))  # a run whose work is known is refused beforehand
    monkeypatch.setattr("framework.platforms.sim.world._worlds", [])  # the session of other tests has weights on a card

    def said_by_a_run() -> str:
        try:
            framework.run([*WORDS, "budget.device=9.5MiB", "recover=off"], prompt="a", seed=1)
        except framework.FrameworkError as error:
            return str(error)
        return "nothing"

    for _ in range(2):
        assert "SimOOM" in said_by_a_run(), "the second is not refused for what the first has left"


def test_a_callback_that_breaks_leaves_a_record_that_says_so_and_the_way_on(
    session: framework.Session, tmp_path: Path
) -> None:
    def broken(event: events.Event) -> None:
        raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError) as caught:
        session.run(f"output.root={tmp_path}", "output.name=x", outputs="paths", on_event=broken)
    record = json.loads((tmp_path / "x" / "record.json").read_text())
    assert (record["status"], record["error"]) == ("failed", "of the user")
    assert "ZeroDivisionError" in (tmp_path / "x" / "log.txt").read_text()
    assert f"to go on: framework run --resume {tmp_path / 'x'}" in caught.value.__notes__


def test_values_by_name_are_literal_and_checked() -> None:
    words = ["pipeline=flux1_kontext"]
    spec = spec_of(words, (), {"prompt": "@no file", "seed": [1, 2], "num_outputs": 2, "image": Path("a.png")})
    (request,) = spec.requests
    assert (request.prompt, request.seeds, request.image) == ("@no file", (1, 2), "a.png")
    assert spec.provenance["request.image"].where == "from Python"
    numbers = {"prompt": "a", "seed": [np.int64(3)], "guidance_scale": np.float32(2.5)}
    (request,) = spec_of(WORDS, (), numbers).requests  # type: ignore[arg-type]
    assert (request.seeds, request.guidance_scale) == ((3,), 2.5)
    with pytest.raises(framework.ConfigError, match=r"request\.height"):
        spec_of(WORDS, (), {"prompt": "a", "height": "tall"})  # type: ignore[typeddict-item]


def test_compose_is_a_function_whatever_was_imported_before() -> None:
    import framework.compose.composer

    assert callable(framework.compose)
    assert framework.compose([*WORDS, "prompt=a"]).pipeline.name == "digits"
    assert framework.compose.composer is not None


def test_a_closed_session_says_so(session: framework.Session) -> None:
    other = framework.Session.__new__(framework.Session)
    other._warm = None
    with pytest.raises(ValueError, match="closed"):
        other.components()
    other.close()


def test_the_examples_of_the_page_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    out = capsys.readouterr().out
    assert "did you mean 'digits'?" in out
    assert "one step is enough" in out
    assert (tmp_path / "three.png").is_file()
