"""Draws a contact sheet: the frames of each clip in a row under a caption. No torch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

MAX_COLUMNS = 16
MAX_WIDTH = 4096  # pixels
MIN_TILE_WIDTH = 96  # pixels; smaller frames are enlarged by a whole factor, so that pixels stay sharp
GAP, CAPTION_HEIGHT = 4, 16  # pixels
MAX_CAPTION = 160  # characters


def draw_sheet(clips: "Sequence[NDArray[np.uint8]]", captions: Sequence[str]) -> "Image":
    """Return one picture of `clips`, each `(frames, height, width, 3)`, one row and one caption a clip.

    Of a longer clip at most 16 frames are shown, evenly spaced, with the first and the last.
    """
    from PIL.Image import Resampling, fromarray, new
    from PIL.ImageDraw import Draw

    columns = min(MAX_COLUMNS, max(len(clip) for clip in clips))
    width, height = _tile_size(clips[0].shape[1], clips[0].shape[2], columns)
    enlarged = width >= clips[0].shape[2]
    row_height = CAPTION_HEIGHT + height + GAP
    sheet = new("RGB", (GAP + columns * (width + GAP), GAP + len(clips) * row_height), "white")
    draw = Draw(sheet)
    for row, (clip, caption) in enumerate(zip(clips, captions, strict=True)):
        top = GAP + row * row_height
        draw.text((GAP, top), _drawable(caption), fill="black")
        for column, index in enumerate(_evenly_spaced(len(clip), columns)):
            tile = fromarray(clip[index])
            tile = tile.resize((width, height), Resampling.NEAREST if enlarged else Resampling.LANCZOS)
            sheet.paste(tile, (GAP + column * (width + GAP), top + CAPTION_HEIGHT))
    return sheet


def _tile_size(height: int, width: int, columns: int) -> tuple[int, int]:
    """Return (width, height) of a frame on the sheet: enlarged when tiny, reduced when a row would be too wide."""
    factor = float(max(1, -(-MIN_TILE_WIDTH // width)))
    factor = min(factor, MAX_WIDTH / columns / width) if factor == 1 else factor
    return max(1, round(width * factor)), max(1, round(height * factor))


def _evenly_spaced(length: int, count: int) -> list[int]:
    if length <= count:
        return list(range(length))
    return [round(index * (length - 1) / (count - 1)) for index in range(count)]


def _drawable(caption: str) -> str:
    """Keep what Pillow's own font can draw; a caption in another script is in the metadata, not on the picture."""
    line = " ".join(caption.split())
    kept = line.encode("latin-1", "ignore").decode("latin-1").strip()
    return kept if len(kept) <= MAX_CAPTION else kept[: MAX_CAPTION - 3] + "..."
