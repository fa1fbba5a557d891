"""The cache of embeddings keeps the most recently used within its bytes."""

import torch

from framework.runtime.prompt_cache import PromptCache, PromptKey

CPU = torch.device("cpu")


def key(text: str) -> PromptKey:
    return PromptKey(encoder=("one",), dtype="float32", template="wan", max_length=4, text=text)


def test_what_was_put_comes_back() -> None:
    cache = PromptCache()
    cache.put(key("a"), torch.ones(4))
    assert torch.equal(cache.get(key("a"), CPU), torch.ones(4))
    assert cache.get(key("b"), CPU) is None


def test_an_embedding_that_is_no_number_is_not_kept() -> None:
    cache = PromptCache()
    cache.put(key("a"), torch.tensor([1.0, float("nan")]))
    assert len(cache) == 0


def test_the_least_recently_used_goes_first() -> None:
    cache = PromptCache(capacity_bytes=32)
    cache.put(key("a"), torch.ones(4))
    cache.put(key("b"), torch.ones(4))
    cache.get(key("a"), CPU)
    cache.put(key("c"), torch.ones(4))
    assert cache.get(key("b"), CPU) is None
    assert cache.get(key("a"), CPU) is not None
    assert cache.size_bytes == 32
