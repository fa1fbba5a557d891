"""Stage `text_encode`: prompts to embeddings, from the cache where they are known. No torch at import."""

from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.spec import ComponentUse

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext
    from framework.runtime.prompt_cache import PromptKey
    from framework.values import Embeddings, Value

NEGATIVE = "negative_prompt_embeds"


@register_stage("text_encode")
class TextEncode:
    """Writes one embedding for each text; a text that is cached leaves the encoder alone."""

    inputs: tuple[str, ...] = ()
    optional_inputs: tuple[str, ...] = ()
    outputs = ("prompt_embeds", NEGATIVE)
    component_uses = (ComponentUse(component="text_encoder", start_at_stage_entry=False),)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        texts = {"prompt_embeds": ctx.request.prompt}
        if ctx.family.needs_negative(ctx):
            texts[NEGATIVE] = ctx.request.negative_prompt or ""
        found = {name: _cached(ctx, name, text) for name, text in texts.items()}
        hits = [name for name, embedding in found.items() if embedding is not None]
        if hits:
            ctx.note(f"{' and '.join(hits)} of request {ctx.request_index} taken from the prompt cache")
        if len(hits) < len(texts):
            with ctx.uses_at_call():
                for name, text in texts.items():
                    if found[name] is None:
                        found[name] = _encode(ctx, name, text)
        return {name: found.get(name) for name in self.outputs}


def _cached(ctx: "StageContext", name: str, text: str) -> "Tensor | Embeddings | None":
    return ctx.prompt_cache.get(_key(ctx, name, text), ctx.device) if ctx.prompt_cache is not None else None


def _encode(ctx: "StageContext", name: str, text: str) -> "Tensor | Embeddings":
    """Encode one text. The same text may come twice in a request, as prompt and as negative prompt."""
    known = _cached(ctx, name, text)
    if known is not None:
        return known
    encode = ctx.family.encode_negative if _stands_apart(ctx, name) else ctx.family.encode
    embedding = encode(ctx, text)
    if ctx.prompt_cache is not None:
        ctx.prompt_cache.put(_key(ctx, name, text), embedding)
    return embedding


def _stands_apart(ctx: "StageContext", name: str) -> bool:
    return name == NEGATIVE and ctx.family.negative_differs


def _key(ctx: "StageContext", name: str, text: str) -> "PromptKey":
    from framework.runtime.prompt_cache import PromptKey

    family = ctx.family
    view = ctx.pipeline_view()
    encoders = (getattr(view, name, None) for name in family.encoders)
    dtype = " ".join(str(encoder.dtype) for encoder in encoders if encoder is not None)
    apart = NEGATIVE if _stands_apart(ctx, name) else ""
    return PromptKey(
        encoder=ctx.identity(*family.encoders, *family.tokenizers),
        dtype=dtype,
        template=" ".join(filter(None, (type(family).__name__, family.text_identity(ctx), apart))),
        max_length=family.max_length(ctx),
        text=text,
    )
