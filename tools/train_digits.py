"""Train the embedded text-to-video model `digits` from scratch, on a CPU, in about an hour and a half of one core.

    python tools/train_digits.py conf/models/digits --work /tmp/digits

The result is an ordinary diffusers folder of a Wan 2.2 style pipeline: UMT5 text encoder, two experts with a boundary,
3D causal VAE, UniPC scheduler and a word-level tokenizer. Every phase (vae, latents, base, experts, export) writes a
checkpoint under `--work`; an interrupted training goes on where it stopped.

Data: scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" set (E. Alpaydin, C. Kaynak, 1998,
CC BY 4.0), 8 x 8 pictures, enlarged and moved over a 32 x 32 canvas. scikit-learn is needed here and in the tests only.
"""

import argparse
import json
import math
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC
from transformers import T5Tokenizer, UMT5Config, UMT5EncoderModel

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
DIRECTIONS = {"still": (0, 0), "left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
FILLERS = ["white", "a", "an", "the", "digit", "number", "picture", "of", "moving", "video", "slowly", "to"]
CANVAS, GLYPH, FRAMES, TRAVEL = 32, 18, 9, 8  # pixels, pixels, frames, pixels a clip
SEQUENCE = 16  # text tokens; the pipeline's YAML says max_sequence_length: 16 for the same reason
BOUNDARY = 0.875  # share of the noise range above which `transformer` works, as in Wan 2.2 T2V
FLOW_SHIFT = 3.0


def clean_digits() -> tuple[torch.Tensor, np.ndarray]:
    """Return glyphs `(N, 18, 18)` in [0, 1] and labels, without the least legible sixth of each class.

    Legibility is the margin of an SVM that has not seen the picture (5-fold); what people misread, the model should
    not learn to draw.
    """
    pictures, labels = load_digits(return_X_y=True)
    scores = cross_val_predict(SVC(C=10, gamma="scale"), pictures / 16, labels, cv=5, method="decision_function")
    own = scores[np.arange(len(labels)), labels]
    others = scores.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    margin = own - others.max(1)
    keep = np.zeros(len(labels), bool)
    for digit in range(10):
        of_digit = labels == digit
        keep |= of_digit & (margin > 0) & (margin >= np.quantile(margin[of_digit], 1 / 6))
    small = torch.tensor(pictures[keep]).float().view(-1, 1, 8, 8) / 16
    large = F.interpolate(small, size=(GLYPH, GLYPH), mode="bicubic", align_corners=False).clamp(0, 1)
    return (large * 1.25).clamp(0, 1)[:, 0], labels[keep]


def make_tokenizer() -> T5Tokenizer:
    """Word pieces for the vocabulary, single ASCII characters for everything else."""
    words = NUMBERS + [str(n) for n in range(10)] + list(DIRECTIONS) + FILLERS
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -6.0)]
    pieces += [("\u2581" + word, -1.0) for word in words]
    pieces += [(chr(code), -8.0) for code in range(33, 127)]
    return T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=64)


class Clips:
    """Draws batches of clips with their captions."""

    def __init__(self) -> None:
        self.glyphs, self.labels = clean_digits()

    def draw(self, count: int, frames: int) -> tuple[torch.Tensor, list[str]]:
        """Return videos `(count, 3, frames, 32, 32)` in [-1, 1] and their prompts."""
        videos = torch.zeros(count, 3, frames, CANVAS, CANVAS)
        prompts = []
        for row in range(count):
            index = random.randrange(len(self.labels))
            name = random.choice(list(DIRECTIONS)) if frames > 1 else "still"
            prompts.append(caption(int(self.labels[index]), name, frames))
            dx, dy = DIRECTIONS[name]
            left = 7 - dx * TRAVEL / 2 + random.uniform(-1, 1)
            top = 7 - dy * TRAVEL / 2 + random.uniform(-1, 1)
            for frame in range(frames):
                moved = frame * TRAVEL / max(frames - 1, 1)
                x, y = (min(max(round(p + d * moved), 0), CANVAS - GLYPH) for p, d in ((left, dx), (top, dy)))
                videos[row, :, frame, y : y + GLYPH, x : x + GLYPH] = self.glyphs[index]
        return videos * 2 - 1, prompts


def caption(digit: int, direction: str, frames: int) -> str:
    """One of the ways to say it; words and numerals alternate at random."""
    noun = random.choice([NUMBERS[digit], str(digit), "digit " + NUMBERS[digit], "number " + str(digit)])
    text = random.choice(["", "a ", "a ", "the ", "a white ", "a picture of a ", "a video of a "]) + noun
    if frames > 1 and direction != "still":
        text += random.choice([" moving ", " moving ", " ", " moving to the ", " slowly moving "]) + direction
    elif frames > 1 and random.random() < 0.5:
        text += " still"
    return text


def make_vae() -> AutoencoderKLWan:
    """Spatial factor 4, temporal factor 4: a clip is 3 x 8 x 8 latents of 8 channels."""
    return AutoencoderKLWan(
        base_dim=12,
        z_dim=8,
        dim_mult=[1, 2, 2],
        num_res_blocks=1,
        temperal_downsample=[True, True],
        latents_mean=[0.0] * 8,
        latents_std=[1.0] * 8,
        scale_factor_spatial=4,
        scale_factor_temporal=4,
    )


def make_text_encoder(vocab_size: int) -> UMT5EncoderModel:
    config = UMT5Config(
        vocab_size=vocab_size, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0
    )
    return UMT5EncoderModel(config)


def make_expert() -> WanTransformer3DModel:
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=4,
        attention_head_dim=28,
        in_channels=8,
        out_channels=8,
        text_dim=64,
        freq_dim=64,
        ffn_dim=288,
        num_layers=5,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )


def decode_without_clamp(vae: AutoencoderKLWan, latents: torch.Tensor) -> torch.Tensor:
    """`AutoencoderKLWan.decode` clamps to [-1, 1], which has no gradient on a black background; train without it."""
    vae.clear_cache()
    hidden = vae.post_quant_conv(latents)
    chunks = []
    for index in range(hidden.shape[2]):
        vae._conv_idx = [0]
        first = {"first_chunk": True} if index == 0 else {}
        piece = hidden[:, :, index : index + 1]
        chunks.append(vae.decoder(piece, feat_cache=vae._feat_map, feat_idx=vae._conv_idx, **first))
    vae.clear_cache()
    return torch.cat(chunks, 2)


def cosine(step: int, steps: int, peak: float, warmup: int) -> float:
    return peak * min(1.0, (step + 1) / warmup) * (0.5 + 0.5 * math.cos(math.pi * step / steps)) + 1e-5


class Phase:
    """One resumable loop: the state of modules, optimiser and random numbers, saved every `every` steps."""

    def __init__(self, work: Path, name: str, steps: int, state: dict[str, object], every: int = 250) -> None:
        self.path, self.name, self.steps, self.state, self.every = work / f"{name}.pt", name, steps, state, every
        self.start = 0
        if self.path.exists():
            saved = torch.load(self.path, weights_only=True)
            self.start = saved["step"]
            for key, target in state.items():
                target.load_state_dict(saved[key])
        random.seed(f"{name}{self.start}")
        torch.manual_seed(self.start + sum(map(ord, name)))

    def run(self, body: Callable[[int], float]) -> None:
        losses: list[float] = []
        began = time.time()
        for step in range(self.start, self.steps):
            losses.append(body(step))
            done = step + 1
            if done % 100 == 0:
                rate = (time.time() - began) / (done - self.start)
                print(
                    f"{self.name} {done}/{self.steps} loss {np.mean(losses[-100:]):.4f} {rate:.2f} s/step", flush=True
                )
            if done % self.every == 0 or done == self.steps:
                payload = {key: target.state_dict() for key, target in self.state.items()}
                torch.save({"step": done, **payload}, self.path.with_suffix(".tmp"))
                self.path.with_suffix(".tmp").replace(self.path)


def train_vae(clips: Clips, work: Path, steps: int) -> AutoencoderKLWan:
    """L1 + L2 with the foreground weighted 7 to 1: without it the VAE is happy with grey smears."""
    torch.manual_seed(0)
    vae = make_vae()
    optimiser = torch.optim.AdamW(vae.parameters(), 2e-3, weight_decay=0)
    phase = Phase(work, "vae", steps, {"vae": vae, "optimiser": optimiser})

    def body(step: int) -> float:
        frames, count = ((1, 24), (5, 8), (FRAMES, 6))[step % 3]
        videos, _ = clips.draw(count, frames)
        set_rate(optimiser, cosine(step, steps, 2e-3, 50))
        posterior = vae.encode(videos).latent_dist
        rebuilt = decode_without_clamp(vae, posterior.sample())
        weight = 1 + 6 * (videos > -0.95).float()
        error = rebuilt - videos
        loss = (weight * error.abs()).mean() + (weight * error**2).mean() + 1e-8 * posterior.kl().mean()
        take_step(optimiser, loss, vae.parameters())
        return error.abs().mean().item()

    phase.run(body)
    return vae.eval().requires_grad_(False)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def take_step(optimiser: torch.optim.Optimizer, loss: torch.Tensor, parameters: object) -> None:
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(parameters), 1.0)
    optimiser.step()


def latent_pool(clips: Clips, vae: AutoencoderKLWan, work: Path, stills: int, videos: int) -> dict[str, object]:
    """Encode once, train on it: the VAE is the slow part. Latents are normalised to mean 0 and deviation 1."""
    path = work / "latents.pt"
    if not path.exists():
        random.seed(1)
        pool: dict[str, object] = {"prompts": {}, "latents": {}}
        with torch.no_grad():
            for frames, count in ((1, stills), (FRAMES, videos)):
                drawn = [clips.draw(64, frames) for _ in range(count)]
                pool["latents"][frames] = torch.cat([vae.encode(batch).latent_dist.mode() for batch, _ in drawn])
                pool["prompts"][frames] = [prompt for _, prompts in drawn for prompt in prompts]
                print(f"latents of {count * 64} clips of {frames} frames", flush=True)
        flat = pool["latents"][FRAMES].transpose(0, 1).flatten(1)
        pool["mean"], pool["std"] = flat.mean(1), flat.std(1)
        for frames, latents in pool["latents"].items():
            centred = latents - pool["mean"].view(1, -1, 1, 1, 1)
            pool["latents"][frames] = centred / pool["std"].view(1, -1, 1, 1, 1)
        torch.save(pool, path)
    pool = torch.load(path, weights_only=True)
    vae.register_to_config(latents_mean=pool["mean"].tolist(), latents_std=pool["std"].tolist())
    return pool


class Average(torch.nn.Module):
    """Exponential moving average of some modules' weights; the averaged weights are the ones that ship."""

    def __init__(self, **modules: torch.nn.Module) -> None:
        super().__init__()
        self.live = modules
        self.kept = {
            name: {key: value.clone() for key, value in module.state_dict().items()} for name, module in modules.items()
        }

    def update(self, step: int) -> None:
        keep = min(0.999, (step + 1) / (step + 51))
        for name, module in self.live.items():
            for key, value in module.state_dict().items():
                self.kept[name][key].lerp_(value, 1 - keep)

    def state_dict(self, *args: object, **kwargs: object) -> dict[str, object]:
        return self.kept

    def load_state_dict(self, state: dict[str, object], *args: object, **kwargs: object) -> None:
        self.kept = state

    def apply_to_live(self) -> None:
        for name, module in self.live.items():
            module.load_state_dict(self.kept[name])
            module.eval().requires_grad_(False)


class Texts:
    """Tokenizer and text encoder as `WanPipeline.encode_prompt` uses them: padded positions are zeros."""

    def __init__(self, tokenizer: T5Tokenizer, encoder: UMT5EncoderModel) -> None:
        self.tokenizer, self.encoder = tokenizer, encoder

    def encode(self, prompts: list[str]) -> torch.Tensor:
        batch = self.tokenizer(prompts, padding="max_length", max_length=SEQUENCE, truncation=True, return_tensors="pt")
        hidden = self.encoder(batch.input_ids, batch.attention_mask).last_hidden_state
        return hidden * batch.attention_mask[..., None]


def draw_times(count: int, low: float, high: float) -> torch.Tensor:
    """Logit-normal times under the sampler's flow shift, restricted to [low, high)."""
    kept = torch.empty(0)
    while len(kept) < count:
        plain = torch.sigmoid(torch.randn(count * 4))
        shifted = FLOW_SHIFT * plain / (1 + (FLOW_SHIFT - 1) * plain)
        kept = torch.cat([kept, shifted[(shifted >= low) & (shifted < high)]])
    return kept[:count]


def flow_loss(
    expert: WanTransformer3DModel, texts: Texts, pool: dict, frames: int, low: float, high: float, count: int
):
    """Rectified flow: the velocity `noise - clean` at a random time; one prompt in ten is empty, for guidance."""
    picks = torch.randint(len(pool["prompts"][frames]), (count,))
    clean = pool["latents"][frames][picks]
    prompts = ["" if random.random() < 0.1 else pool["prompts"][frames][i] for i in picks.tolist()]
    times = draw_times(count, low, high)
    noise = torch.randn_like(clean)
    share = times.view(-1, 1, 1, 1, 1)
    noisy = (1 - share) * clean + share * noise
    guess = expert(noisy, timestep=times * 1000, encoder_hidden_states=texts.encode(prompts), return_dict=False)[0]
    return F.mse_loss(guess, noise - clean)


def train_base(pool: dict, texts: Texts, work: Path, steps: int, rate: float) -> WanTransformer3DModel:
    """Train one expert over the whole noise range together with the text encoder."""
    torch.manual_seed(2)
    expert = make_expert()
    average = Average(expert=expert, texts=texts.encoder)
    parameters = list(expert.parameters()) + list(texts.encoder.parameters())
    optimiser = torch.optim.AdamW(parameters, rate, weight_decay=0.01, betas=(0.9, 0.98))
    state = {"expert": expert, "texts": texts.encoder, "average": average, "optimiser": optimiser}
    phase = Phase(work, "base", steps, state)

    def body(step: int) -> float:
        frames = 1 if step % 4 == 0 else FRAMES
        set_rate(optimiser, cosine(step, steps, rate, 100))
        loss = flow_loss(expert, texts, pool, frames, 0.0, 1.0, 64)
        take_step(optimiser, loss, parameters)
        average.update(step)
        return loss.item()

    phase.run(body)
    average.apply_to_live()
    return expert


def train_experts(base: WanTransformer3DModel, pool: dict, texts: Texts, work: Path, steps: int, rate: float) -> dict:
    """Turn two copies of the base into experts, each on its own side of the boundary; the text encoder stays."""
    experts = {}
    for name, low, high, share in (("transformer", BOUNDARY, 1.0, 1 / 3), ("transformer_2", 0.0, BOUNDARY, 2 / 3)):
        expert = make_expert()
        expert.load_state_dict(base.state_dict())
        average = Average(expert=expert)
        optimiser = torch.optim.AdamW(expert.parameters(), rate, weight_decay=0.01, betas=(0.9, 0.98))
        own_steps = int(steps * share)
        phase = Phase(work, name, own_steps, {"expert": expert, "average": average, "optimiser": optimiser})

        def body(step: int, expert=expert, average=average, optimiser=optimiser, low=low, high=high, total=own_steps):
            frames = 1 if step % 6 == 0 else FRAMES
            set_rate(optimiser, cosine(step, total, rate, 50))
            loss = flow_loss(expert, texts, pool, frames, low, high, 64)
            take_step(optimiser, loss, expert.parameters())
            average.update(step)
            return loss.item()

        phase.run(body)
        average.apply_to_live()
        experts[name] = expert
    return experts


def export(folder: Path, tokenizer: T5Tokenizer, texts: Texts, vae: AutoencoderKLWan, experts: dict) -> None:
    """Write an ordinary diffusers folder; weights are stored as float16 and run as float32."""
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=FLOW_SHIFT)
    pipe = WanPipeline(
        tokenizer=tokenizer,
        text_encoder=texts.encoder.eval().half(),
        vae=vae.half(),
        transformer=experts["transformer"].half(),
        transformer_2=experts["transformer_2"].half(),
        scheduler=scheduler,
        boundary_ratio=BOUNDARY,
    )
    pipe.save_pretrained(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    print(json.dumps({"folder": str(folder), "safetensors_bytes": size}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vae-steps", type=int, default=3000)
    parser.add_argument("--base-steps", type=int, default=3000)
    parser.add_argument("--expert-steps", type=int, default=1200, help="both experts together")
    parser.add_argument("--until", choices=["vae", "base", "experts"], default="experts")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    clips, tokenizer = Clips(), make_tokenizer()
    vae = train_vae(clips, options.work, options.vae_steps)
    if options.until == "vae":
        return
    pool = latent_pool(clips, vae, options.work, stills=60, videos=160)
    torch.manual_seed(3)
    texts = Texts(tokenizer, make_text_encoder(len(tokenizer)))
    base = train_base(pool, texts, options.work, options.base_steps, 2e-3)
    if options.until == "base":
        experts = {"transformer": base, "transformer_2": base}
    else:
        experts = train_experts(base, pool, texts, options.work, options.expert_steps, 5e-4)
    export(options.folder, tokenizer, texts, vae, experts)


if __name__ == "__main__":
    main()
