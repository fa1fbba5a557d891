"""Tokenizers over single characters or bytes, built in memory. Imports transformers inside its functions."""

from typing import Any

CHARACTERS = [chr(code) for code in range(33, 127)]
SPACE = "▁"  # how sentencepiece writes a space
CHAT_TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def t5_tokenizer() -> Any:
    """Ids 0, 1, 2 are padding, end and unknown, as T5 expects."""
    from transformers import T5Tokenizer

    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), (SPACE, -2.0), *((c, -3.0) for c in CHARACTERS)]
    return T5Tokenizer(vocab=vocab, extra_ids=0, model_max_length=512)


def clip_tokenizer() -> Any:
    """Ids 0 and 1 are start and end; every byte stands alone and at the end of a word."""
    from transformers import CLIPTokenizer

    alphabet = _bytes()
    pieces = ["<|startoftext|>", "<|endoftext|>", *alphabet, *(piece + "</w>" for piece in alphabet)]
    return CLIPTokenizer(vocab=_numbered(pieces), merges=[], model_max_length=77)


def qwen_tokenizer(more_marks: tuple[str, ...] = ()) -> Any:
    """Bytes, then the marks of a chat, with the short template that the pipelines fill in."""
    from transformers import Qwen2Tokenizer

    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *more_marks]
    vocab = _numbered([*_bytes(), *marks])
    tokenizer = Qwen2Tokenizer(
        vocab=vocab, merges=[], extra_special_tokens=marks[1:], pad_token=marks[0], model_max_length=4096
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def gemma_tokenizer() -> Any:
    from transformers import GemmaTokenizer

    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", SPACE, *CHARACTERS]
    return GemmaTokenizer(vocab=_numbered(pieces), merges=[], model_max_length=300)


def llama_tokenizer() -> Any:
    """Characters; ids 0 and 1 are start and end, which also pads."""
    from transformers import LlamaTokenizer

    pieces = ["<s>", "</s>", "<unk>", SPACE, *CHARACTERS]
    return LlamaTokenizer(vocab=_numbered(pieces), merges=[], pad_token="</s>", model_max_length=512)


def _bytes() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def _numbered(pieces: list[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}
