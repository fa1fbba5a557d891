"""The prompt cache: a text that is known leaves the encoder alone."""

from collections.abc import Callable
from typing import Any

import spec_builders
import torch
from spec_builders import Recorder, request

from framework.runtime.events import Note, UseStarted
from framework.runtime.prompt_cache import PromptCache

Named = Callable[[str], Any]


def encoder_uses(recorder: Recorder) -> list[int]:
    return [event.request for event in recorder.of(UseStarted) if event.component == "text_encoder"]


def cache_notes(recorder: Recorder) -> list[str]:
    return [event.text for event in recorder.of(Note) if "prompt cache" in event.text]


def test_a_cached_prompt_begins_no_use_and_a_new_one_does(loaded_stores: Named) -> None:
    wanted = [request(), request(seeds=(1,)), request(prompt="a dog")]
    _, recorder = spec_builders.run(loaded_stores("wan21"), *wanted)
    assert encoder_uses(recorder) == [0, 2]
    assert cache_notes(recorder) == [
        "prompt_embeds and negative_prompt_embeds of request 1 taken from the prompt cache",
        "negative_prompt_embeds of request 2 taken from the prompt cache",
    ]


def test_a_hit_runs_no_layer_of_the_encoder(loaded_stores: Named) -> None:
    loaded = loaded_stores("wan21")
    calls: list[int] = []
    handle = loaded[2].module("text_encoder").encoder.block[0].register_forward_hook(lambda *_: calls.append(1))
    try:
        spec_builders.run(loaded, request(), request())
    finally:
        handle.remove()
    assert len(calls) == 2  # the positive and the negative text of the first request


def test_a_hit_gives_the_same_picture(loaded_stores: Named) -> None:
    result, _ = spec_builders.run(loaded_stores("wan21"), request(), request())
    first, second = (done.values["frames"].data for done in result.requests)
    assert torch.equal(first, second)


def test_without_the_cache_every_request_encodes(loaded_stores: Named) -> None:
    options = {"changes": {"prompt_cache_memory": False}}
    _, recorder = spec_builders.run(loaded_stores("wan21"), request(), request(), **options)
    assert encoder_uses(recorder) == [0, 1]
    assert cache_notes(recorder) == []


def test_another_length_is_another_entry(loaded_stores: Named) -> None:
    wanted = [request(), request(max_sequence_length=16)]
    _, recorder = spec_builders.run(loaded_stores("wan21"), *wanted)
    assert encoder_uses(recorder) == [0, 1]


def test_the_same_text_on_both_sides_is_encoded_once(loaded_stores: Named) -> None:
    cache = PromptCache()
    spec_builders.run(loaded_stores("wan21"), request(prompt="bad"), prompt_cache=cache)
    assert len(cache) == 1


def test_two_models_do_not_share_embeddings(loaded_stores: Named) -> None:
    cache = PromptCache()
    spec_builders.run(loaded_stores("wan21"), request(), prompt_cache=cache)
    _, recorder = spec_builders.run(loaded_stores("wan22"), request(), prompt_cache=cache)
    assert encoder_uses(recorder) == [0]
