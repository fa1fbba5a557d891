"""What reads texts where no tokenizer is at hand: every text has as many tokens as it may have. Imports torch.

So a plan made without the checkpoint is one for the longest prompt.
"""

from collections.abc import Mapping
from types import MappingProxyType
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
    added_tokens_encoder: Mapping[str, int] = MappingProxyType({})

    def __init__(self, limit: int = DEFAULT_LENGTH) -> None:
        self.model_max_length = limit

    def __call__(self, text: Any = None, *args: Any, **options: Any) -> "StandInTokens":
        texts = [text] if isinstance(text, str) or text is None else list(text)
        length = options.get("max_length") or self.model_max_length
        if options.get("padding") == "longest" and not options.get("max_length"):
            return StandInTokens(_ids(len(texts), 1))  # asked whether anything was cut
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

    def tokenize(self, text: str, *args: Any, **options: Any) -> list[str]:
        return ["word"] * (self.model_max_length - 2)

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
        for name, tensor in self.items():
            self[name] = tensor.to(device)
        return self


def _ids(count: int, length: int) -> Tensor:
    return torch.full((count, length), TOKEN)


class StandInProcessor:
    """Answers as the processor of Qwen2-VL does: a token for each place that its encoder sees in a picture."""

    def __init__(self, tokenizer: StandInTokenizer, config: Any) -> None:
        self.tokenizer = tokenizer
        self._vision = config.vision_config
        self._image_token = config.image_token_id

    def __call__(self, text: Any = None, images: Any = None, **options: Any) -> StandInTokens:
        texts = [text] if isinstance(text, str) else list(text)
        pictures = [] if images is None else list(images) if isinstance(images, list | tuple) else [images]
        grids = [self._grid(picture) for picture in pictures]
        merged = self._vision.spatial_merge_size**2
        places = sum(rows * columns for _, rows, columns in grids) // merged
        ids = _ids(len(texts), self.tokenizer.model_max_length + places)
        ids[:, 1 : 1 + places] = self._image_token
        tokens = StandInTokens(ids)
        if grids:
            width = 3 * self._vision.temporal_patch_size * self._vision.patch_size**2
            tokens["pixel_values"] = torch.zeros(places * merged, width)
            tokens["image_grid_thw"] = torch.tensor(grids)
        return tokens

    def _grid(self, picture: Any) -> tuple[int, int, int]:
        step = self._vision.patch_size * self._vision.spatial_merge_size
        height, width = (picture.height, picture.width) if hasattr(picture, "height") else picture.shape[-2:]
        scale = self._vision.spatial_merge_size
        return 1, round(height / step) * scale, round(width / step) * scale


def stand_in(name: str, encoder: Any) -> Any:
    """Return what stands in for the helper `name` of `encoder`, a config that knows how long a text may be."""
    limit = getattr(encoder, "max_position_embeddings", None)
    tokenizer = StandInTokenizer(min(limit, DEFAULT_LENGTH) if isinstance(limit, int) else DEFAULT_LENGTH)
    if name.startswith("tokenizer"):
        return tokenizer
    if name in ("image_processor", "feature_extractor"):
        from transformers import CLIPImageProcessor

        return CLIPImageProcessor()
    return StandInProcessor(tokenizer, encoder) if hasattr(encoder, "vision_config") else None


def made_by_default(annotation: Any) -> Any:
    """Return an object of a helper's class where it needs no arguments (a guider, say), else None."""
    try:
        return annotation() if isinstance(annotation, type) else None
    except TypeError:
        return None
