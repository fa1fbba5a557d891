"""Rates that are learned from runs explain what the runs took, and nothing is learned from what says nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import shipped_works as shipped

from framework.calibration.learn import Observed, error, learn
from framework.calibration.measured import Measured, laid_over, rates_of_profile
from framework.calibration.runs import learn_from
from framework.errors import ConfigError
from framework.planning.plan_data import plan_data
from framework.platforms.hardware import HardwareProfile


def test_a_rate_that_all_stages_share_is_found_exactly() -> None:
    stages = [Observed({"conv_tflops": 2.0}, 2.5, 4.5), Observed({"conv_tflops": 1.0}, 1.0, 2.0)]
    assert learn(stages) == {"conv_tflops": pytest.approx(0.5)}
    assert error(stages, {}) > 0.4
    assert error(stages, learn(stages)) == pytest.approx(0, abs=1e-5)


def test_rates_that_mix_are_told_apart() -> None:
    def stage(matmul: float, attention: float) -> Observed:
        return Observed(
            {"matmul_tflops": matmul, "attention_tflops": attention}, matmul + attention, matmul / 0.8 + attention / 0.4
        )

    found = learn([stage(3, 1), stage(1, 3), stage(5, 0.1)])
    assert found == {"attention_tflops": pytest.approx(0.4, rel=0.02), "matmul_tflops": pytest.approx(0.8, rel=0.02)}


def test_a_rate_that_is_little_of_every_stage_is_left_alone() -> None:
    assert set(learn([Observed({"conv_tflops": 9.0, "memory_gbps": 1.0}, 10.0, 20.0)])) == {"conv_tflops"}


def record(folder: Path, name: str, real: HardwareProfile, started: str = "2026-01-01") -> None:
    """A run of a shipped pipeline that was planned for an RTX 4090, and took what `real` would have taken."""
    planned, took = (shipped.plan(name, card, "low_vram") for card in (shipped.card("rtx_4090"), real))
    expected = {
        one.stage: {"expected_s": one.seconds, "measured_s": other.seconds}
        for one, other in zip(planned.forecast.stages, took.forecast.stages, strict=True)
    }
    write(folder, plan_data(planned) | {"device_key": "nvidia x"}, expected, started)


def write(folder: Path, forecast: Mapping[str, Any], expected: Any, started: str = "2026-01-01") -> None:
    folder.mkdir(parents=True)
    content = {"schema": 1, "config": {}, "started": started, "plan": {"forecast": forecast}}
    requests = [{"expected": expected}]
    (folder / "record.json").write_text(json.dumps({**content, "requests": requests}))


def test_runs_tell_the_rates_of_the_machine_they_ran_on(tmp_path: Path) -> None:
    assumed = shipped.card("rtx_4090")
    real = laid_over(assumed, Measured(conv_tflops=41.3, matmul_tflops=99.0, attention_tflops=66.0), "real")
    for name in ("wan21_1_3b", "sdxl", "z_image_turbo", "flux1_dev"):
        record(tmp_path / "sweep" / name, name, real)
    (found,) = learn_from([tmp_path])
    assert (found.device, found.hardware) == ("nvidia x", "rtx_4090")
    assert found.error_before > 0.1
    assert found.error_after < 0.05
    assert found.rates.matmul_tflops == pytest.approx(99.0, rel=0.1)
    assert found.rates.conv_tflops == pytest.approx(41.3, rel=0.1)


def test_runs_whose_forecasts_were_right_change_nothing(tmp_path: Path) -> None:
    record(tmp_path / "run", "sdxl", shipped.card("rtx_4090"))
    (found,) = learn_from([tmp_path / "run"])
    assumed = rates_of_profile(shipped.card("rtx_4090"))
    assert found.error_before == found.error_after == pytest.approx(0)
    assert found.rates.conv_tflops == pytest.approx(assumed.conv_tflops)


def test_earlier_forecasts_with_other_rates_are_brought_to_the_latest(tmp_path: Path) -> None:
    stage = {"stage": "decode", "spent_s": {"conv_tflops": 4.0}}
    slow = {"rates": {"conv_tflops": 10.0}, "stages": [stage]}
    write(tmp_path / "a", slow, {"decode": {"expected_s": 4.0, "measured_s": 8.0}}, "2026-01-01")
    fast = {"rates": {"conv_tflops": 5.0}, "stages": [{**stage, "spent_s": {"conv_tflops": 8.0}}]}
    write(tmp_path / "b", fast, {"decode": {"expected_s": 8.0, "measured_s": 8.0}}, "2026-02-01")
    (found,) = learn_from([tmp_path / "b", tmp_path / "a"])
    assert found.rates.conv_tflops == pytest.approx(5.0)
    assert found.error_before == pytest.approx(0)


def test_a_damaged_record_among_others_is_told_and_passed_over(tmp_path: Path) -> None:
    record(tmp_path / "a", "sdxl", shipped.card("rtx_4090"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "record.json").write_text("{")
    told: list[str] = []
    (found,) = learn_from([tmp_path], told.append)
    assert found.num_stages > 0
    assert len(told) == 1
    assert str(tmp_path / "b") in told[0]
    with pytest.raises(ConfigError):
        learn_from([tmp_path / "b"])


def test_folders_without_runs_or_forecasts_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run in"):
        learn_from([tmp_path])
    write(tmp_path / "run", {}, None)
    with pytest.raises(ConfigError, match="was held against a plan"):
        learn_from([tmp_path])
