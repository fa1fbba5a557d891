"""Draws the pictures of docs/life-of-a-run.md from one traced run of the embedded model on the simulated card.

    python -m tools.draw_life [--check]

The card is slowed down to the model's size, so that copies and computing take times of one order, as they do for a
large model on a real card. Times are virtual and exact, so the pictures come out the same everywhere; `--check` says
whether those in docs/pictures are the same.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from framework.cli import main as framework
from framework.report.phrases import format_bytes, format_exact

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
WORDS = (
    "device=sim", "hardware=rtx_4090", "hardware.launch_us=0.02", "hardware.fp32_tflops=0.4", "hardware.memory_gbps=60",
    "hardware.h2d_pinned_gbps=8", "component_residency.all=layerwise-offload",
    "component_residency.vae=component-offload", "seed=3", "request.num_inference_steps=4",
    "prompt=a three moving left",
)  # fmt: skip
TRACKS = ("stages", "compute", "copy")
COLORS = {"text_encoder": "#2c9a7a", "transformer": "#2f6fbf", "transformer_2": "#d9822b", "vae": "#b2559b"}
STALL, OTHER = "#c5221f", "#8b95a1"
WIDTH, LEFT, ROW = 760, 70, 34


def run(root: Path) -> list[dict[str, Any]]:
    """Run the model and return the complete events of its trace, with the name of their track."""
    assert framework(["run", "--quiet", "--trace", f"output.root={root}", "output.name=life", *WORDS]) == 0
    events = json.loads((root / "life" / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return [{**event, "track": names[event["tid"]]} for event in events if event["ph"] == "X"]


def draw(events: Sequence[Mapping[str, Any]], start: float, end: float, title: str) -> str:
    """Return the tracks between two moments, in microseconds, as SVG."""
    scale = (WIDTH - LEFT - 10) / (end - start)
    shapes = [f'<text x="{LEFT}" y="16">{escape(title)}</text>']
    for row, track in enumerate(TRACKS):
        y = 26 + row * ROW
        shapes.append(f'<text x="4" y="{y + 18}">{track}</text>')
        shapes.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="26" fill="#8b95a1" opacity=".15"/>'
        )
        for event in events:
            if event["track"] == track and event["ts"] < end and event["ts"] + event["dur"] > start:
                shapes.append(_shape(event, start, end, scale, y))
    bottom = 26 + len(TRACKS) * ROW + 12
    shapes.append(f'<text x="{LEFT}" y="{bottom}">0</text>')
    shapes.append(f'<text x="{WIDTH - 10}" y="{bottom}" text-anchor="end">{format_exact((end - start) / 1e6)}</text>')
    legend = [*COLORS.items(), ("waiting", STALL), ("anything else", OTHER)]
    for number, (name, fill) in enumerate(legend):
        x = LEFT + number * 112
        shapes.append(f'<rect x="{x}" y="{bottom + 10}" width="11" height="11" fill="{fill}"/>')
        shapes.append(f'<text x="{x + 16}" y="{bottom + 20}">{name}</text>')
    size = f'viewBox="0 0 {WIDTH} {bottom + 30}" width="{WIDTH}"'
    style = "text{font:12px system-ui,sans-serif;fill:#57606a}@media(prefers-color-scheme:dark){text{fill:#9aa4af}}"
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{style}</style>\n{body}\n</svg>\n'


def _shape(event: Mapping[str, Any], start: float, end: float, scale: float, y: int) -> str:
    arguments = event["args"]
    fill = STALL if event["cat"] == "stall" else COLORS.get(arguments.get("component", ""), OTHER)
    first, last = max(event["ts"], start), min(event["ts"] + event["dur"], end)
    size = f", {format_bytes(arguments['bytes'])}" if arguments.get("bytes") else ""
    title = escape(f"{event['name']}: {format_exact(event['dur'] / 1e6)}{size}")
    inset = 5 if event["cat"] == "step" else 0
    width = max(0.4, (last - first) * scale)
    place = f'x="{LEFT + (first - start) * scale:.1f}" y="{y + inset}" width="{width:.1f}" height="{26 - 2 * inset}"'
    edge = ' stroke="#fff" stroke-width=".5"' if width > 3 else ""
    return f'<rect {place} fill="{fill}"{edge}><title>{title}</title></rect>'


def pictures(events: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the pictures by file name: the whole request, and one step of the loop."""
    whole = next(event for event in events if event["name"] == "request 1")
    step = next(event for event in events if event["cat"] == "step" and event["name"] == "step 3")
    shown = [event for event in events if event["cat"] != "request"]
    return {
        "request.svg": draw(shown, whole["ts"], whole["ts"] + whole["dur"], "One request"),
        "step.svg": draw(shown, step["ts"], step["ts"] + step["dur"], "One step of the loop"),
    }


def main() -> int:
    """Draw the pictures, or compare them with those that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as root:
        drawn = pictures(run(Path(root)))
    if check:
        stale = [name for name, text in drawn.items() if (PICTURES / name).read_text(encoding="utf-8") != text]
        print(f"not as drawn now: {', '.join(stale)}" if stale else "the pictures are as drawn now")
        return 1 if stale else 0
    PICTURES.mkdir(exist_ok=True)
    for name, text in drawn.items():
        (PICTURES / name).write_text(text, encoding="utf-8")
        print(PICTURES / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
