"""What reads texts where no tokenizer is at hand: every text has as many tokens as it may have. Imports torch.

So a plan made without the checkpoint is one for the longest prompt.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

DEFAULT_LENGTH = 512
TOKEN = 5  # of no meaning, and no special one in any vocabulary


class StandInTokenizer:
    """Answers as a tokenizer does; `limit` is the length where a call names none."""

    pad_token_id = eos_token_id = 1
    bos_token_id = 0
    pad_token = eos_token = "</s>"
    padding_side = "right"

    def __init__(self, limit: int = DEFAULT_LENGTH) -> None:
        self.model_max_length = limit

    def __call__(self, text: Any = None, *args: Any, **options: Any) -> "StandInTokens":
        texts = [text] if isinstance(text, str) or text is None else list(text)
        length = options.get("max_length") or self.model_max_length
        if options.get("padding") not in ("max_length", True) and not options.get("return_tensors"):
            return StandInTokens(torch.full((length,), TOKEN) if isinstance(text, str) else _ids(len(texts), length))
        return StandInTokens(_ids(len(texts), length))

    def apply_chat_template(self, messages: Any, *args: Any, **options: Any) -> Any:
        """A conversation becomes a text, or tokens where those are asked for."""
        if not options.get("tokenize", True):
            return "" if not messages or isinstance(messages[0], dict) else [""] * len(messages)
        many = 1 if not messages or isinstance(messages[0], dict) else len(messages)
        found = self([""] * many, **options)
        return found if options.get("return_dict") else found.input_ids

    def batch_decode(self, ids: Any, *args: Any, **options: Any) -> list[str]:
        return [""] * len(ids)

    def encode(self, text: str, *args: Any, **options: Any) -> list[int]:
        return [TOKEN] * (options.get("max_length") or self.model_max_length)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return TOKEN if isinstance(tokens, str) else [TOKEN] * len(tokens)

    def __len__(self) -> int:
        return TOKEN + 1


class StandInTokens(dict[str, Tensor]):
    """Ids and mask, by name and as attributes."""

    def __init__(self, ids: Tensor) -> None:
        super().__init__(input_ids=ids, attention_mask=torch.ones_like(ids))

    @property
    def input_ids(self) -> Tensor:
        return self["input_ids"]

    @property
    def attention_mask(self) -> Tensor:
        return self["attention_mask"]

    def to(self, device: Any) -> "StandInTokens":
        moved = StandInTokens(self.input_ids.to(device))
        moved["attention_mask"] = self.attention_mask.to(device)
        return moved


def _ids(count: int, length: int) -> Tensor:
    return torch.full((count, length), TOKEN)


def stand_in(name: str, encoders: Sequence[Any]) -> Any:
    """Return what stands in for the helper `name`; `encoders` are the configs that know how long a text may be."""
    limits = [getattr(config, "max_position_embeddings", None) for config in encoders]
    known = [limit for limit in limits if isinstance(limit, int)]
    if name.startswith("tokenizer"):
        return StandInTokenizer(min([*known, DEFAULT_LENGTH]))
    if name in ("image_processor", "feature_extractor"):
        from transformers import CLIPImageProcessor

        return CLIPImageProcessor()
    return None
