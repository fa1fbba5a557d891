"""Every public report and every behaviour that the product answers for is named by a test. No torch.

The ids of reports and traps stand in docstrings or names of tests, so that a search for one finds its test.
`BEHAVIOURS` maps the one-line behaviours of the residency semantics (strategies and manager 2, streaming 3, host
budget 4, host tables T) to tests; where something has no counterpart here, the reason stands instead.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def numbered(prefix: str, *numbers: int, width: int = 2) -> list[str]:
    return [f"{prefix}-{number:0{width}}" for number in numbers]


CASES = (
    *numbered("OC", *range(1, 13)),
    *numbered("ME", *range(1, 11)),
    *numbered("LI", *range(1, 8)),
    *numbered("CF", *range(1, 10)),
    *numbered("US", 1, 2, 3, 4, 5, 6, 7),
    *numbered("SE", 1, 2, 3, 4, 5),
    *numbered("SW", *range(1, 10)),
    *numbered("SX", *range(1, 13), width=1),
)

WHOLE_RUNS = ("LI-03", "LI-05", "ME-05", "ME-09", "US-05", "US-06", "US-07")
"""Reports about what a user sees of a run: their tests go through the command line."""

NONE = "none: "
BEHAVIOURS = {
    "2.1": "test_preferred_uses_come_back_after_a_warmup_only",
    "2.2": "test_what_is_kept_after_a_warmup_stays_until_the_first_real_request_has_ended",
    "2.3": "test_a_component_may_come_when_its_stage_runs",
    "2.4": "test_a_strategy_is_built_once_for_a_module_and_anew_for_another",
    "2.5": "test_another_instance_takes_the_place_of_one_in_use",
    "2.6": NONE + "requests run one after the other; a warm-up is never in a batch",
    "2.7": "test_an_entry_started_use_lasts_for_its_stage",
    "2.8": "test_a_call_started_use_begins_at_the_first_call_and_ends_with_the_block",
    "2.9": "test_a_cached_prompt_begins_no_use_and_a_new_one_does",
    "2.10": "test_an_entry_started_use_lasts_for_its_stage",
    "2.11": "test_adjacent_stages_with_the_same_use_share_one_interval",
    "2.12": "test_another_instance_takes_the_place_of_one_in_use",
    "2.13": "test_uses_without_phases_overlap",
    "2.14": "test_a_component_may_come_when_its_stage_runs",
    "2.15": "test_what_was_prefetched_and_is_passed_over_goes_before_the_next_use",
    "2.16": "test_another_dtype_prepares_again_and_a_declared_one_is_passed_on",
    "2.17": NONE + "there is no layered Qwen stage",
    "2.18": "test_a_failed_move_puts_the_component_back",
    "2.19": "test_cf03_an_unused_component_with_an_explicit_mode_is_refused",
    "2.20": "test_components_are_told_with_bytes_and_dtype_largest_file_first",
    "2.21": NONE + "a warm-up reports no figures; every request has its own peak",
    "2.22": "test_a_component_may_come_when_its_stage_runs",
    "2.23": NONE + "on unified memory nothing is moved, so nothing is to be given back",
    "2.24": "test_nothing_is_copied_back",
    "3.1": "test_strides_survive",
    "3.2": "test_inference_mode_changes_nothing_and_writes_are_still_seen",
    "3.3": "test_paths_of_the_yaml_name_the_lists_in_order",
    "3.4": "test_buffers_travel_and_an_updated_one_keeps_its_value",
    "3.5": "test_any_order_of_calls_gives_the_same_bytes",
    "3.6": "test_mixed_dtypes_come_back_bit_by_bit_at_aligned_addresses",
    "3.7": "test_modelopt_weights_are_streamed_but_not_moved_whole",
    "3.8": "test_cf01_truth_table",
    "3.9": "test_the_layerwise_flag_streams_the_dits_only",
    "3.10": "test_a_denoiser_is_read_once_a_step_and_all_else_once",
    "3.11": "test_cf05_any_component_of_the_pipeline_can_be_selected_by_its_name",
    "3.12": "test_layerwise_list_default_is_encoders_and_the_limited_vaes",
    "3.13": "test_exact_beats_group_beats_all",
    "3.14": "test_cf08_layerwise_of_a_component_without_layers_is_refused_naming_what_works",
    "3.15": "test_an_automatic_fallback_is_not_made_strict_by_an_unrelated_entry_of_the_user",
    "3.16": "test_each_flag_places_its_family_and_no_other",
    "3.17": "test_a_strategy_gets_the_shared_resources_if_it_takes_them",
    "3.18": "test_a_component_without_known_layers_is_refused_naming_what_works",
    "3.19": "test_a_sharded_module_is_never_moved",
    "3.20": "test_residents_live_as_long_as_they_are_told",
    "3.21": "test_every_knob_gives_the_same_bytes_twice",
    "3.22": "test_load_all_pauses_streaming_and_release_all_ends_it",
    "3.23": "test_residents_do_not_hold_up_the_first_pass",
    "3.24": "test_the_declared_order_comes_first_and_wraps_into_the_next_pass",
    "3.25": "test_knobs_are_counted_on_the_real_stacks",
    "3.26": NONE + "uses are events with seconds; the log of a run has no list of layers",
    "3.27": "test_each_component_is_placed_before_the_next_is_read",
    "3.28": NONE + "whether residents are held is the plan's word, not a flag on a module",
    "3.29": "test_sx5_groups_and_folding_work_for_knobs_as_for_modes",
    "3.30": "test_load_all_pauses_streaming_and_release_all_ends_it",
    "3.31": "test_both_policies_stream_the_same_number_and_agree_at_the_ends",
    "3.32": "test_strided_spreads_the_streamed_layers",
    "3.33": "test_a_known_use_copies_each_layer_once_a_step_and_nothing_for_nothing",
    "3.34": "test_a_legacy_map_beats_the_scalar_of_the_dits_and_does_not_leak",
    "3.35": "test_weights_are_real_exactly_when_they_are_on_the_device",
    "3.36": "test_what_lies_outside_the_layers_can_be_parked_between_uses",
    "3.37": "test_mapped_weights_are_copied_where_copies_fit",
    "4.1": "test_the_v1_number_that_means_no_limit_is_none",
    "4.2": "test_a_machine_that_is_fuller_than_the_limit_counts",
    "4.3": "test_the_tightest_of_nested_limits_wins",
    "4.4": "test_what_cannot_be_copied_stays_in_the_mapped_file",
    "4.5": "test_the_first_asker_is_capped_too",
    "4.6": "test_tied_bytes_count_once",
    "4.7": "test_a_few_step_model_changes_the_ranking",
    "4.8": "test_the_budget_key_is_a_tighter_limit_and_is_named",
    "T.1": "test_a_table_on_the_host_gives_the_same_rows",
    "T.2": "test_only_the_rows_asked_for_travel",
    "T.3": "test_a_tied_or_small_table_goes_to_the_device",
    "T.4": "test_the_table_says_it_is_on_the_device_and_refuses_other_reads",
}


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path != Path(__file__)}


def test_every_report_and_trap_is_named_by_a_test(texts: dict[Path, str]) -> None:
    everything = "\n".join(texts.values())
    missing = [
        case for case in CASES if not re.search(rf"\b{case}\b|test_(\w+_)?{case.replace('-', '').lower()}_", everything)
    ]
    assert not missing


def test_reports_about_whole_runs_are_named_by_tests_of_whole_runs(texts: dict[Path, str]) -> None:
    whole = "\n".join(text for path, text in texts.items() if path.parent.name == "e2e")
    missing = [
        case
        for case in WHOLE_RUNS
        if not re.search(rf"def test_{case.replace('-', '').lower()}_|\"\"\"Case {case}\b", whole)
    ]
    assert not missing


def test_every_behaviour_has_its_test_or_a_reason(texts: dict[Path, str]) -> None:
    known = set(re.findall(r"^def (test_\w+)", "\n".join(texts.values()), re.MULTILINE))
    missing = {key: name for key, name in BEHAVIOURS.items() if not name.startswith(NONE) and name not in known}
    assert not missing
    numbers = [key for key in BEHAVIOURS if not key.startswith("T")]
    assert numbers == [f"{part}.{n}" for part, count in ((2, 24), (3, 37), (4, 8)) for n in range(1, count + 1)]
