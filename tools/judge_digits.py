"""Judge clips of the embedded model: which digit is drawn on a frame, and which way it moves. Needs scikit-learn.

    python tools/judge_digits.py [FOLDER]

The judge is an SVM over centred 12 x 12 crops, trained on 1,400 real digits and checked on the other 397.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.svm import SVC

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
INK = 0.25  # share of white above which a pixel belongs to the digit
GLYPH = 18  # pixels; the size at which the training clips draw a digit


@dataclass(frozen=True, slots=True)
class Case:
    """One clip of the fixed test set: ten digits x four directions, words and numerals alternating, seeds 0 to 39."""

    digit: int
    direction: str
    seed: int

    @property
    def prompt(self) -> str:
        name = NUMBERS[self.digit] if self.seed % 2 == 0 else str(self.digit)
        return f"a {name} moving {self.direction}"


CASES = tuple(Case(digit, name, digit * 4 + row) for digit in range(10) for row, name in enumerate(DIRECTIONS))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`read[i]`: the digits read on first, middle and last frame of case i; `shift[i]`: pixels along its direction."""

    read: tuple[tuple[int, int, int], ...]
    shift: tuple[float, ...]

    def right_clips(self, digit: int | None = None) -> int:
        pairs = zip(CASES, self.read, strict=True)
        return sum(set(read) == {case.digit} for case, read in pairs if digit in (None, case.digit))

    def right_directions(self, pixels: float = 4.0) -> int:
        return sum(shift >= pixels for shift in self.shift)

    def confusion(self) -> np.ndarray:
        """Rows: asked digit; columns: digit read, over all three frames."""
        table = np.zeros((10, 10), int)
        for case, read in zip(CASES, self.read, strict=True):
            for digit in read:
                table[case.digit, digit] += 1
        return table


class Judge:
    """Reads digits; `accuracy` is its share of right answers on held-out real digits."""

    def __init__(self) -> None:
        pictures, labels = load_digits(return_X_y=True)
        features = np.array([crop(np.pad(enlarge(picture), 7)).ravel() for picture in pictures])
        order = np.random.RandomState(0).permutation(len(labels))
        train, held_out = order[:1400], order[1400:]
        self._model = SVC(C=10, gamma="scale").fit(features[train], labels[train])
        self.accuracy = float(self._model.score(features[held_out], labels[held_out]))

    def read(self, frame: np.ndarray) -> int:
        """Return the digit on a grey frame `(height, width)` in [0, 1]."""
        return int(self._model.predict([crop(frame).ravel()])[0])

    def judge(self, make_clip: Callable[[Case], np.ndarray]) -> Verdict:
        """`make_clip` returns the frames of a case, `(frames, height, width, 3)` in [0, 1]."""
        read, shifts = [], []
        for case in CASES:
            grey = make_clip(case).mean(-1)
            first, middle, last = (self.read(grey[index]) for index in (0, len(grey) // 2, len(grey) - 1))
            read.append((first, middle, last))
            move = centroid(grey[-1]) - centroid(grey[0])
            dx, dy = DIRECTIONS[case.direction]
            shifts.append(float(move[1] * dx + move[0] * dy))
        return Verdict(tuple(read), tuple(shifts))


def enlarge(picture: np.ndarray) -> np.ndarray:
    """An 8 x 8 picture of values 0 to 16 as the training clips draw it."""
    small = torch.tensor(picture).float().view(1, 1, 8, 8) / 16
    large = F.interpolate(small, size=(GLYPH, GLYPH), mode="bicubic", align_corners=False).clamp(0, 1)
    return (large * 1.25).clamp(0, 1)[0, 0].numpy()


def crop(frame: np.ndarray) -> np.ndarray:
    """The 18 x 18 window around the ink, scaled to 12 x 12; zeros where there is no ink."""
    rows, columns = np.where(frame > INK)
    if len(rows) < 5:
        return np.zeros((12, 12))
    padded = np.pad(frame, 12)
    top = round((rows.min() + rows.max()) / 2) + 12 - GLYPH // 2
    left = round((columns.min() + columns.max()) / 2) + 12 - GLYPH // 2
    window = torch.tensor(padded[top : top + GLYPH, left : left + GLYPH].copy()).float()[None, None]
    return F.interpolate(window, size=(12, 12), mode="bilinear")[0, 0].numpy()


def centroid(frame: np.ndarray) -> np.ndarray:
    """Mean (row, column) of the ink; the origin where there is none."""
    points = np.array(np.where(frame > INK))
    return points.mean(1) if points.size else np.zeros(2)


def main() -> None:
    from diffusers import WanPipeline

    torch.set_num_threads(1)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "conf" / "models" / "digits"
    steps, guidance = int(sys.argv[2]) if len(sys.argv) > 2 else 16, float(sys.argv[3]) if len(sys.argv) > 3 else 3.0
    pipe = WanPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)

    def make_clip(case: Case) -> np.ndarray:
        return pipe(
            prompt=case.prompt,
            negative_prompt="",
            height=32,
            width=32,
            num_frames=9,
            num_inference_steps=steps,
            guidance_scale=guidance,
            max_sequence_length=16,
            generator=torch.Generator().manual_seed(case.seed),
            output_type="np",
        ).frames[0]

    judge = Judge()
    verdict = judge.judge(make_clip)
    print(verdict.confusion())
    result = {
        "judge_accuracy": round(judge.accuracy, 3),
        "clips_right": verdict.right_clips(),
        "worst_digit": min(verdict.right_clips(digit) for digit in range(10)),
        "directions_right": verdict.right_directions(),
        "of": len(CASES),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
