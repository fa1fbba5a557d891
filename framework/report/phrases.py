"""How sizes, times and prompts read in a line. No torch."""

import json

MAX_PROMPT = 100  # characters on a terminal; a file gets the whole


def format_bytes(size_bytes: int) -> str:
    """Return a size in binary units: `512 B`, `3.2 MiB`."""
    size, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """Return a duration: `0.45 s`, `12.3 s`, `3 min 05 s`, `2 h 03 min`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_exact(seconds: float) -> str:
    """Return a duration that may be very short: `12.3 us`, `4.56 ms`, else as `format_seconds`."""
    if seconds == 0:
        return "0 s"
    if seconds >= 1:
        return format_seconds(seconds)
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def quote(text: str, limit: int | None = None) -> str:
    """Return `text` in quotes on one line, control characters escaped, shortened to `limit` characters."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 3] + "..."
    return json.dumps(text, ensure_ascii=False)
