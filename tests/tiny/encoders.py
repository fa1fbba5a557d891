"""Text and image encoders of a few layers with random weights. Imports transformers inside its functions."""

from typing import Any

T5_SETTINGS = {
    "vocab_size": 128,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 37,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "dropout_rate": 0.0,
}
QWEN_SETTINGS = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


def umt5() -> Any:
    from transformers import UMT5Config, UMT5EncoderModel

    return UMT5EncoderModel(UMT5Config(**T5_SETTINGS))


def t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(**T5_SETTINGS))


def clip_text(vocab_size: int, projection: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=3,
        projection_dim=32,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(config)


def clip_vision() -> Any:
    """The image encoder of Wan 2.1 I2V: 5 tokens of width 16 for a picture."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        projection_dim=16,
        num_attention_heads=2,
        num_hidden_layers=3,
        image_size=32,
        patch_size=16,
    )
    return CLIPVisionModel(config)


def clip_image_processor() -> Any:
    from transformers import CLIPImageProcessor

    return CLIPImageProcessor(crop_size=32, size=32)


def qwen3(vocab_size: int, num_layers: int = 2, causal: bool = False) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3Model

    config = Qwen3Config(vocab_size=vocab_size, num_hidden_layers=num_layers, head_dim=8, **QWEN_SETTINGS)
    return (Qwen3ForCausalLM if causal else Qwen3Model)(config)


def qwen25_vl(tokenizer: Any) -> Any:
    """Sees pictures where the tokenizer has the mark of one."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"}
    text = {
        **QWEN_SETTINGS,
        "num_hidden_layers": 2,
        "vocab_size": len(tokenizer),
        "rope_scaling": rope,
        "rope_theta": 1e6,
    }
    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    known = tokenizer.get_vocab()
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        hidden_size=16,
        vocab_size=len(tokenizer),
        vision_start_token_id=known.get("<|vision_start|>", 256),
        vision_end_token_id=known.get("<|vision_end|>", 257),
        image_token_id=known.get("<|image_pad|>", 258),
        video_token_id=known.get("<|video_pad|>", 258),
    )
    return Qwen2_5_VLForConditionalGeneration(config)


def picture_processor(tokenizer: Any) -> Any:
    """What Qwen2.5-VL sees of a picture: at most four tokens. Without torchvision it has no half for videos."""
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor
    from transformers.utils import is_torchvision_available

    parts = [Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56), tokenizer]
    if is_torchvision_available():
        from transformers import Qwen2VLVideoProcessor

        parts.append(Qwen2VLVideoProcessor())
    else:
        Qwen2VLProcessor.get_attributes = classmethod(lambda cls: ["image_processor", "tokenizer"])
    return Qwen2VLProcessor(*parts)


def gemma2(vocab_size: int) -> Any:
    from transformers import Gemma2Config, Gemma2Model

    config = Gemma2Config(
        vocab_size=vocab_size,
        head_dim=16,
        hidden_size=8,
        intermediate_size=64,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=2,
        attn_implementation="eager",
    )
    return Gemma2Model(config)
