"""What the figures of `peers_sim` say of its goals. No torch."""

from collections.abc import Mapping
from typing import Any

AUTO = "ours, auto"
RESIDENT = "diffusers resident"
FASTER = 1.5
ROUNDING = 1.001
"""Virtual times are exact; what is left are the launches of a few more or fewer kernels."""

BUDGET, IMAGES, PEAK, ONE_WAY, ONE_COPY, SAME = (
    "at the same memory never slower than any peer that fits",
    f"at least {FASTER} x the best peer on images that do not fit resident",
    "within a peer's own peak never slower than that peer",
    "no weights moved from the device to the host",
    "one copy for each streamed layer and call",
    "the same picture as with everything resident",
)


def check(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return goal, whether it holds (None: does not apply) and by how much, for one model on one machine."""
    rows = {row["setting"]: row for row in found["rows"]}
    ours = [row for name, row in rows.items() if name.startswith("ours") and row["seconds"] is not None]
    peers = [row for name, row in rows.items() if not name.startswith("ours") and row["seconds"] is not None]
    auto = rows[AUTO]["seconds"]
    best = min(peers, key=lambda row: row["seconds"], default=None)
    return [
        _budget(auto, best),
        _images(found, rows, auto, best),
        _peaks(found["within"], min((row["peak_bytes"] for row in ours), default=0)),
        _goal(ONE_WAY, max((row["weights_d2h_bytes"] or 0 for row in ours), default=0) == 0, "0 bytes"),
        _goal(ONE_COPY, max((row["copies"] or 0 for row in ours), default=0) <= 1, "at most 1"),
        _goal(SAME, all(row["same_picture"] for row in ours), "bit-equal"),
    ]


def _goal(goal: str, holds: bool | None, figure: str) -> dict[str, Any]:
    return {"goal": goal, "holds": holds, "figure": figure}


def _shown(ratio: float) -> str:
    """A ratio that would be rounded to 1 says on which side it is."""
    return f"{ratio:.3f}" if 0.995 <= ratio < 1 else f"{ratio:.2f}"


def _budget(auto: float | None, best: Mapping[str, Any] | None) -> dict[str, Any]:
    if best is None:
        return _goal(BUDGET, None, "no peer fits")
    if auto is None:
        return _goal(BUDGET, False, f"ours does not fit, {best['setting']} does")
    ratio = best["seconds"] / auto
    return _goal(BUDGET, ratio * ROUNDING >= 1, f"{_shown(ratio)} x {best['setting']}")


def _images(
    found: Mapping[str, Any], rows: Mapping[str, Any], auto: float | None, best: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Nothing is faster than everything resident on a machine with memory to spare: that bounds the ratio."""
    fits = rows.get(RESIDENT, {}).get("seconds") is not None
    if not found["image"] or fits or auto is None or best is None:
        return _goal(IMAGES, None, "does not apply")
    ratio, bound = best["seconds"] / auto, best["seconds"] / found["ample_resident_s"]
    text = f"{ratio:.2f} x {best['setting']}"
    if ratio < FASTER:
        text += f"; everything resident in ample memory would be {bound:.2f} x"
    return _goal(IMAGES, ratio >= FASTER, text)


def _peaks(within: list[dict[str, Any]], smallest_bytes: int) -> dict[str, Any]:
    slower = []
    for pair in within:
        if pair["ours_s"] is None:
            more = smallest_bytes / pair["peak_bytes"]
            slower.append(f"ours needs {more:.1f} x the peak of {pair['peer']}")
        elif pair["ours_s"] > ROUNDING * pair["peer_s"]:
            slower.append(f"{_shown(pair['peer_s'] / pair['ours_s'])} x {pair['peer']}")
    smallest = min((pair["peer_s"] / pair["ours_s"] for pair in within if pair["ours_s"]), default=None)
    return _goal(PEAK, not slower, "; ".join(slower) or (f"at least {smallest:.2f} x" if smallest else "no peer fits"))
