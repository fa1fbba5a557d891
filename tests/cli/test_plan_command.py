"""`plan`: the table, its answers to why and what if, charts, matrices and refusals. Work comes from stored files."""

import csv
import json
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import shipped_works

from framework.cli import main
from framework.commands import plan as plan_command
from framework.commands import plan_matrix
from framework.sweep import compose_jobs

FLUX = ("pipeline=flux1_dev", "hardware=rtx_4090")


@pytest.fixture(autouse=True)
def _stored_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan_command, plan_matrix):
        monkeypatch.setattr(module, "Planner", lambda: shipped_works.ShippedPlanner(connect=False))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `plan` with words; return its exit code and what it printed."""

    def call(*words: str) -> tuple[int, str]:
        code = main(["plan", *words])
        told = capsys.readouterr()
        return code, told.out + told.err

    return call


def test_it_tells_each_stage_with_its_peak_host_memory_time_and_bound(run: Any) -> None:
    code, text = run(*FLUX, "residency=auto")
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith("pipeline flux1_dev on rtx_4090 (24 GiB): height 1024, width 1024")
    assert [line.split()[0] for line in lines[3:5]] == ["load", "encode_prompt"]
    denoise = next(line for line in lines if line.startswith("denoise "))
    assert "transformer" in denoise
    assert denoise.rstrip().endswith(("compute", "bus"))
    assert any(line.startswith("decode") and " = " in line and "activations" in line for line in lines)
    assert any(line.startswith("peak ") and "of device memory" in line for line in lines)
    assert any(line.startswith("what if: 2 GB more of device memory would ") for line in lines)
    assert any(line.startswith("what if: request.height=1536 request.width=1536: ") for line in lines)


def test_json_has_everything_and_parts_sum_up(run: Any) -> None:
    code, text = run(*FLUX, "residency=auto", "--json")
    data = json.loads(text)
    assert code == 0
    assert data["planned"]
    assert data["components"]["transformer"]["reason"]
    assert data["components"]["text_encoder_2"]["size_bytes"] > 9e9
    for stage in data["stages"]:
        assert sum(stage["parts"].values()) == stage["device_peak_bytes"] <= data["device_bytes"]
    assert data["seconds"] == pytest.approx(data["load_s"] + sum(stage["seconds"] for stage in data["stages"]))
    assert {"low_vram", "all layerwise-offload"} <= set(data["presets"])


def test_a_preset_is_foretold_as_it_is_and_compared_with_the_planners_choice(run: Any) -> None:
    code, text = run(*FLUX, "residency=minimal")
    assert code == 0
    assert "layerwise-offload (0 ahead, 0+0 of 19+38 stay)" in text
    assert "what if: residency=auto: " in text


def test_a_deep_prefetch_that_saves_nothing_is_named(run: Any) -> None:
    _, text = run("pipeline=wan2", "hardware=rtx_4090", "residency=low_vram", "layerwise.transformer.prefetch=8")
    assert "what if: layerwise.transformer.prefetch=8 is no faster than 1" in text


def test_why_says_what_else_there_was(run: Any) -> None:
    code, text = run(*FLUX, "residency=auto", "--why", "transformer")
    assert code == 0
    assert "GB in bfloat16, from sheet:black-forest-labs/FLUX.1-dev" in text
    assert "  in denoise: " in text
    assert "  instead: transformer " in text


def test_why_of_a_component_that_there_is_not_names_the_nearest(run: Any) -> None:
    code, text = run(*FLUX, "--why", "transformr")
    assert code == 2
    assert "the run uses no component 'transformr'; did you mean 'transformer'?" in text


def test_why_is_text_about_one_plan_and_is_refused_beside_what_is_not(run: Any) -> None:
    assert run("seed=1,2", "--why", "vae") == (
        2,
        "--why: explains one plan, and these are several; give each key one value\n",
    )
    code, text = run(*FLUX, "--json", "--why", "vae")
    assert code == 2
    assert text.startswith("--why: is text, and --json asks for everything as data; leave one out")


def test_what_cannot_fit_ends_with_3_and_says_where_how_much_and_what_would(run: Any) -> None:
    code, text = run(*FLUX, "residency=resident")
    assert code == 3
    assert "needs " in text.splitlines()[0]
    assert " of device memory, and there is " in text
    assert "leave component_residency." in text or "more of device memory" in text
    assert "what if: residency=auto fits" in text


def test_a_card_that_is_far_too_small_is_refused_with_ways_out(run: Any) -> None:
    code, text = run("pipeline=flux1_dev", "hardware=rtx_4090", "residency=auto", "budget.device=1GiB")
    assert code == 3
    assert "stage '" in text
    assert "what would fit: " in text


def test_tiles_are_named_where_they_alone_would_do(run: Any) -> None:
    code, text = run("pipeline=wan21_1_3b", "hardware=rtx_4060_8gb", "residency=minimal")
    assert code == 3
    assert "stage 'decode' needs " in text
    assert "what if: numerics.vae_tiling=true fits (changes the picture)" in text


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_chart_shows_every_stage(run: Any, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"plan.{suffix}"
    assert run(*FLUX, "residency=auto", "--chart", str(file))[0] == 0
    text = file.read_text(encoding="utf-8")
    svg = text[text.index("<svg") : text.index("</svg>") + len("</svg>")]
    titles = [node.text or "" for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("decode, activations: ") for title in titles)
    for stage in ("encode_prompt", "denoise", "decode"):
        assert any(title.startswith(f"{stage}: ") for title in titles)


def test_a_chart_of_another_kind_is_refused(run: Any) -> None:
    code, text = run(*FLUX, "--chart", "plan.png")
    assert (code, "write FILE.svg or FILE.html" in text) == (2, True)


def test_several_machines_and_values_make_a_row_each(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    words = ("pipeline=flux1_dev", "hardware=rtx_4090,h200", "residency=resident,low_vram", "--chart", str(file))
    code, text = run(*words)
    assert code == 0
    assert text.splitlines()[0].split() == ["hardware", "residency", "peak", "host", "time", "bound", "by"]
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    assert [(row["hardware"], row["residency"], row["fits"]) for row in rows] == [
        ("rtx_4090", "resident", "False"),
        ("rtx_4090", "low_vram", "True"),
        ("h200", "resident", "True"),
        ("h200", "low_vram", "True"),
    ]
    assert "GB of device memory" in rows[0]["refused"]
    assert float(rows[2]["seconds"]) < float(rows[3]["seconds"])


def test_a_matrix_where_nothing_fits_ends_with_3(run: Any) -> None:
    code, text = run("pipeline=flux1_dev", "hardware=rtx_4090,rtx_3090", "residency=resident")
    assert code == 3
    assert text.count("does not fit: ") == 2


def test_files_are_composed_once_for_each_combination_of_groups_and_planned_once_for_alike_rows(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed, planned = [], []
    compose_words, best = compose_jobs.compose_words, shipped_works.ShippedPlanner._best
    monkeypatch.setattr(compose_jobs, "compose_words", lambda *words: composed.append(1) or compose_words(*words))
    monkeypatch.setattr(shipped_works.ShippedPlanner, "_best", lambda *own: planned.append(1) or best(*own))
    code, text = run("pipeline=digits", "hardware=rtx_4090,h200", "seed=range(6)")
    assert (code, len(text.splitlines())) == (0, 13)
    assert (len(composed), len(planned)) == (2, 2)


@pytest.mark.slow
def test_a_thousand_points_take_less_than_a_minute_and_five_times_as_long_as_two_hundred(run: Any) -> None:
    seconds = {}
    for count in (50, 250):
        started = time.process_time()
        code, text = run("pipeline=wan2", "hardware=rtx_4090,h200", "residency=low_vram,auto", f"seed=range({count})")
        seconds[count] = time.process_time() - started
        assert (code, len(text.splitlines())) == (0, 4 * count + 1)
    assert seconds[250] < 60
    assert seconds[250] < 6 * seconds[50]
