"""All families: those of `image_builders`, and diffusion on UNets, Sana and videos. torch in functions only."""

from image_builders import CASES as PICTURES
from image_builders import Case

ORIGINAL = "pipeline.model.variant=null"
"""The tiny folders have no files in half precision."""
GUIDED = {"guidance_scale": 3.0, "negative_prompt": "bad"}
CLIP = {**GUIDED, "max_sequence_length": None}  # which reads 77 tokens, whatever is said
CHANGED = {**CLIP, "strength": 0.6, "num_inference_steps": 4}
VIDEO = {"num_frames": 5, "max_sequence_length": 32}
LTX = {**GUIDED, **VIDEO, "num_frames": 9, "fps": 25}
VIDEOS = "num_videos_per_prompt"

OTHERS = {
    "sd15": Case("sd15_checked", "sd15", CLIP, GUIDED, words=(ORIGINAL,)),
    "sdxl": Case("sdxl", "sdxl", CLIP, GUIDED, words=(ORIGINAL,)),
    "sdxl_img2img": Case(
        "sdxl",
        "sdxl_img2img",
        {**CHANGED, "height": None, "width": None},
        {**GUIDED, "strength": 0.6},
        takes_picture=True,
        words=(ORIGINAL,),
        plain_class="StableDiffusionXLImg2ImgPipeline",
    ),
    "sdxl_inpaint": Case(
        "sdxl",
        "sdxl_inpaint",
        CHANGED,
        {**GUIDED, "strength": 0.6},
        takes_picture=True,
        takes_mask=True,
        words=(ORIGINAL,),
        plain_class="StableDiffusionXLInpaintPipeline",
    ),
    "sana": Case(
        "sana",
        "sana",
        {**GUIDED, "max_sequence_length": 32},
        {**GUIDED, "use_resolution_binning": False},
        words=(ORIGINAL, "pipeline.args.use_resolution_binning=false"),
    ),
    "wan21_i2v": Case("wan21_i2v", "wan21_i2v_14b", {**GUIDED, **VIDEO}, GUIDED, takes_picture=True, counted=VIDEOS),
    "wan22_i2v": Case(
        "wan22_i2v",
        "wan2_i2v",
        {**GUIDED, **VIDEO, "guidance_scale_2": 2.0},
        {**GUIDED, "guidance_scale_2": 2.0},
        takes_picture=True,
        counted=VIDEOS,
    ),
    "ltx": Case("ltx", "ltx", LTX, {**GUIDED, "frame_rate": 25}, counted=VIDEOS),
    "ltx_i2v": Case(
        "ltx",
        "ltx_i2v",
        LTX,
        {**GUIDED, "frame_rate": 25},
        takes_picture=True,
        plain_class="LTXImageToVideoPipeline",
        counted=VIDEOS,
    ),
    "hunyuan_video15": Case(
        "hunyuan_video15",
        "hunyuan_video15",
        {"num_frames": 5, "max_sequence_length": None, "guidance_scale": 6.0, "negative_prompt": "bad"},
        {"negative_prompt": "bad"},  # its guider has 6.0
        counted=VIDEOS,
    ),
}
CASES = {**PICTURES, **OTHERS}
