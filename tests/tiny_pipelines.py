"""Tiny pipelines with random weights, built without a hub: small in width, real in structure. Imports torch.

The builders are in `tiny/`, one file for each kind. Transformers have 6 to 8 layers, because with fewer no two ways to
stream them differ.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tiny import flux, hunyuan, image_transformers, ltx, pictures, stable_diffusion, stable_diffusion_3, videos, wan

BUILDERS: Mapping[str, Callable[[], Any]] = {
    "wan21": wan.wan21,
    "wan22": wan.wan22,
    "wan_ti2v": wan.wan_ti2v,
    "wan21_i2v": wan.wan21_i2v,
    "wan22_i2v": wan.wan22_i2v,
    "flux": flux.flux,
    "flux_schnell": flux.flux_schnell,
    "flux_kontext": flux.flux_kontext,
    "flux2_klein": flux.flux2_klein,
    "flux2_klein_deep": flux.flux2_klein_deep,
    "qwen_image": image_transformers.qwen_image,
    "qwen_image_edit": image_transformers.qwen_image_edit,
    "qwen_image_edit_plus": image_transformers.qwen_image_edit_plus,
    "sd3": stable_diffusion_3.sd3,
    "zimage": image_transformers.zimage,
    "sana": image_transformers.sana,
    "sd15": stable_diffusion.sd15,
    "sd15_checked": stable_diffusion.sd15_checked,
    "sdxl": stable_diffusion.sdxl,
    "hunyuan_video15": hunyuan.hunyuan_video15,
    "ltx": ltx.ltx,
    "ltx_timed": ltx.ltx_timed,
    "animatediff": videos.animatediff,
    "chroma": pictures.chroma,
    "cogvideox": videos.cogvideox,
    "hunyuan_video": videos.hunyuan_video,
    "lumina2": pictures.lumina2,
    "pixart_alpha": pictures.pixart_alpha,
    "pixart_sigma": pictures.pixart_sigma,
}

CALLS: Mapping[str, Mapping[str, Any]] = {
    "wan21": wan.CALL,
    "wan22": wan.CALL,
    "wan_ti2v": wan.CALL,
    "wan21_i2v": wan.CALL,
    "wan22_i2v": wan.CALL,
    "flux": flux.FLUX_CALL,
    "flux_schnell": flux.FLUX_CALL,
    "flux_kontext": flux.FLUX_CALL,
    "flux2_klein": flux.KLEIN_CALL,
    "flux2_klein_deep": flux.DEEP_KLEIN_CALL,
    "qwen_image": image_transformers.QWEN_CALL,
    "qwen_image_edit": image_transformers.QWEN_CALL,
    "qwen_image_edit_plus": image_transformers.QWEN_CALL,
    "sd3": stable_diffusion_3.CALL,
    "zimage": image_transformers.ZIMAGE_CALL,
    "sana": image_transformers.SANA_CALL,
    "sd15": stable_diffusion.CALL,
    "sd15_checked": stable_diffusion.CALL,
    "sdxl": stable_diffusion.CALL,
    "hunyuan_video15": hunyuan.CALL,
    "ltx": ltx.CALL,
    "ltx_timed": ltx.CALL,
    "animatediff": videos.ANIMATEDIFF_CALL,
    "chroma": pictures.CHROMA_CALL,
    "cogvideox": videos.COGVIDEOX_CALL,
    "hunyuan_video": videos.HUNYUAN_CALL,
    "lumina2": pictures.LUMINA_CALL,
    "pixart_alpha": pictures.PIXART_CALL,
    "pixart_sigma": pictures.PIXART_CALL,
}
"""Small arguments for the call of each; one that starts from a picture needs `image` as well, see `start_picture`."""

FROM_PICTURES = frozenset({"wan21_i2v", "wan22_i2v", "flux_kontext", "qwen_image_edit", "qwen_image_edit_plus"})


def build(name: str, seed: int = 0) -> Any:
    """Return the pipeline called `name`, in eval mode; `seed` fixes its weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pipeline = BUILDERS[name]()
    for component in pipeline.components.values():
        if isinstance(component, torch.nn.Module):
            component.eval()
    return pipeline


def save(name: str, folder: Path) -> Path:
    """Write the pipeline called `name` as an ordinary diffusers folder and return the folder."""
    build(name).save_pretrained(folder)
    return folder


def call_arguments(name: str) -> dict[str, Any]:
    """The arguments of a plain call of `name`, the picture to start from included."""
    return {**CALLS[name], **({"image": start_picture()} if name in FROM_PICTURES else {})}


def start_picture() -> Any:
    """A PIL image of 32 x 32 pixels with a different colour everywhere."""
    from PIL.Image import fromarray

    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    pixels = torch.stack([rows * 8, columns * 8, 255 - rows * 4 - columns * 4], dim=-1)
    return fromarray(pixels.to(torch.uint8).numpy(), "RGB")
