"""The contact sheet: which frames are on it, where, how large, and what the captions say."""

import numpy as np
import pytest
from PIL.Image import Image

from framework.outputs.sheet import CAPTION_HEIGHT, GAP, MAX_COLUMNS, MAX_WIDTH, draw_sheet


def grey_clip(*levels: int, height: int = 20, width: int = 96) -> np.ndarray:
    """One frame of even grey for each level."""
    frames = [np.full((height, width, 3), level, np.uint8) for level in levels]
    return np.stack(frames)


def levels_of_row(sheet: Image, row: int, columns: int, height: int = 20, width: int = 96) -> list[int]:
    """The grey in the middle of each tile of a row."""
    y = GAP + row * (CAPTION_HEIGHT + height + GAP) + CAPTION_HEIGHT + height // 2
    xs = [GAP + column * (width + GAP) + width // 2 for column in range(columns)]
    return [sheet.getpixel((x, y))[0] for x in xs]


def caption_ink(sheet: Image, row: int = 0, height: int = 20) -> int:
    """The number of pixels that a row's caption darkens."""
    top = GAP + row * (CAPTION_HEIGHT + height + GAP)
    return int((np.asarray(sheet)[top : top + CAPTION_HEIGHT] < 128).any(-1).sum())


def test_each_clip_is_a_row_with_its_frames_in_order() -> None:
    sheet = draw_sheet([grey_clip(10, 20, 30), grey_clip(110, 120, 130)], ["one", "two"])
    assert levels_of_row(sheet, 0, 3) == [10, 20, 30]
    assert levels_of_row(sheet, 1, 3) == [110, 120, 130]


def test_a_long_clip_shows_its_first_and_last_frame_and_even_steps_between() -> None:
    sheet = draw_sheet([grey_clip(*range(0, 93, 3))], [""])
    shown = levels_of_row(sheet, 0, MAX_COLUMNS)
    assert (shown[0], shown[-1]) == (0, 90)
    assert set(np.diff(shown)) == {6}


def test_tiny_frames_are_enlarged_without_blur() -> None:
    checkers = np.indices((1, 8, 8)).sum(0).astype(np.uint8)[..., None].repeat(3, -1) % 2 * 255
    sheet = np.asarray(draw_sheet([checkers], [""]))[GAP + CAPTION_HEIGHT : -GAP, GAP:-GAP]
    assert sheet.shape == (96, 96, 3)
    assert set(np.unique(sheet)) == {0, 255}


def test_large_frames_are_reduced_to_a_sheet_of_bounded_width() -> None:
    sheet = draw_sheet([grey_clip(*[5] * 16, height=480, width=832)], [""])
    assert sheet.width <= MAX_WIDTH + (MAX_COLUMNS + 1) * GAP


def test_the_caption_is_drawn_over_its_row() -> None:
    clips = [grey_clip(200), grey_clip(200)]
    sheet = draw_sheet(clips, ["seed 7", ""])
    assert caption_ink(sheet, 0) > caption_ink(sheet, 1) == 0


@pytest.mark.parametrize("prompt", ["一只猫", "\U0001f431", "\ud83d"])
def test_what_the_font_lacks_is_left_out_of_the_caption(prompt: str) -> None:
    plain, mixed = (draw_sheet([grey_clip(200)], [text]) for text in ("seed 7", f"seed 7  {prompt}"))
    assert np.array_equal(np.asarray(plain), np.asarray(mixed))
