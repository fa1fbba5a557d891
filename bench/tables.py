"""What benches found, as Markdown: ratios first. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def verdict(holds: bool) -> str:
    return "met" if holds else "not met"


def hook_overhead(found: Mapping[str, Any]) -> list[str]:
    cost, ours = found["microseconds_per_layer"], found["microseconds_per_layer"]["ours"]
    goals = {"diffusers group offload": 15, "accelerate offload": 60}
    rows = []
    for name, value in cost.items():
        ratio = "1" if name == "ours" else f"1/{value / ours:.0f}" if value > ours else f"{ours / value:.1f}"
        goal = f"1/{goals[name]}, {verdict(value / ours >= goals[name])}" if name in goals else ""
        rows.append((name, ratio, goal, f"{value:.2f} us"))
    return grid(("beside", "ours costs", "goal", "a layer"), rows)


def overhead(found: Mapping[str, Any]) -> list[str]:
    rows = [
        ("framework / plain script", f"{found['ratio']:.3f} (median of {found['pairs']} pairs)"),
        ("framework", f"{found['ours_s']:.2f} s"),
        ("plain script", f"{found['plain_s']:.2f} s"),
        ("reading and checking the config, not in the above", f"{found['compose_s']:.3f} s"),
    ]
    return grid(("embedded model, from config to closed mp4", "figure"), rows)


def overlap_sim(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Streamed time over the recurrence, over everything resident, and over the larger of compute and copies."""
    rows = []
    for row in found:
        bound = max(row["compute_s"], row["copy_s"])
        ratios = [f"{row['streamed_s'] / beside:.3f}" for beside in (row["recurrence_s"], row["resident_s"], bound)]
        covered = "yes" if row["covered"] else "no"
        rows.append((row["model"], row["hardware"], str(row["prefetch"]), *ratios, covered))
    worst = max(row["streamed_s"] / row["recurrence_s"] for row in found)
    heads = ("model", "hardware", "prefetch", "/ recurrence", "/ resident", "/ max(compute, copy)", "compute covers")
    return [
        f"Highest ratio to the recurrence: {worst:.3f}; goal 1.03, {verdict(worst <= 1.03)}.",
        "",
        *grid(heads, rows),
    ]


def load_memory(found: Mapping[str, Any]) -> list[str]:
    size, rows = found["checkpoint_bytes"], []
    for name, row in found["variants"].items():
        held = f"{row['peak_bytes'] / row['held_bytes']:.2f}" if row["held_bytes"] else ""
        share = f"{row['peak_bytes'] / size:.2f}"
        rows.append((name, held, share, f"{row['peak_bytes'] / 1e9:.2f} GB", f"{row['seconds']:.1f} s"))
    heads = ("variant", "peak / held by its tier (goal 1.1)", "peak / checkpoint", "peak", "time")
    return [f"Checkpoint of {size / 1e9:.2f} GB in bfloat16.", "", *grid(heads, rows)]


def sweep(found: Mapping[str, Any]) -> list[str]:
    rows = [
        ("sweep / separate runs", f"{found['share']:.2f}", f"at most 0.35, {verdict(found['share'] <= 0.35)}"),
        ("sweep", f"{found['sweep_s']:.1f} s", ""),
        ("separate runs", f"{found['separate_s']:.1f} s", f"{found['runs']} measured"),
    ]
    return grid(("jobs of the embedded model", "figure", "goal"), rows)


def trace_overhead(found: Mapping[str, Any]) -> list[str]:
    goal = f"{found['goal']:.0%}, {verdict(found['share'] < found['goal'])}"
    rows = [
        ("share of a layer of 5 ms", f"{found['share']:.2%}", goal),
        ("a layer", f"{found['layer_s'] * 1e6:.1f} us", ""),
    ]
    return grid(("tracing", "figure", "goal"), rows)


def events(found: Mapping[str, Any]) -> list[str]:
    goal = f"{found['goal_ns']} ns, {verdict(found['nobody'] < found['goal_ns'])}"
    rows = [
        ("heard by nobody", f"{found['nobody']:.0f} ns", goal),
        ("heard by one listener", f"{found['one listener']:.0f} ns", ""),
    ]
    return grid(("an event", "cost", "goal"), rows)


def peers_sim(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The goals of every model and machine first, then every setting of each."""
    lines = peers_goals(found)
    for case in found:
        share = case["denoiser_bytes"] / case["capacity_bytes"]
        lines += ["", f"### {case['model']} on {case['hardware']}", ""]
        lines += [f"{case['steps']} steps; the denoiser is {share:.2f} x the memory.{_activations(case)}", ""]
        lines += _settings(case)
    return lines


def peers_goals(found: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for number, goal in enumerate(found[0]["goals"]):
        cases = [(case, case["goals"][number]) for case in found]
        counted = [(case, one) for case, one in cases if one["holds"] is not None]
        met = sum(one["holds"] for _, one in counted)
        lines += [f"**{goal['goal']}**: {verdict(met == len(counted))}, {met} of {len(counted)}.", ""]
        if number < 3:
            rows = [(case["model"], case["hardware"], verdict(one["holds"]), one["figure"]) for case, one in counted]
            lines += [*grid(("model", "hardware", "goal", "ours is"), rows), ""]
    return lines[:-1]


def _activations(case: Mapping[str, Any]) -> str:
    if "activations" not in case:  # results kept before they were looked at
        return ""
    taken, real = case["activations"], case["real_activations"]
    return f" Activations of a call take {taken:.3f} of its bytes, really {real:.3f}."


def _settings(case: Mapping[str, Any]) -> list[str]:
    """Ratios of time, and in shares of the denoiser memory and what went over the bus in a request of four steps."""
    auto = next((row["seconds"] for row in case["rows"] if row["setting"] == "ours, auto"), None)
    rows = []
    for row in case["rows"]:
        if row["seconds"] is None:
            rows.append((row["setting"], row["why"], *[""] * 6))
            continue
        size = case["denoiser_bytes"]
        shares = [f"{row[name] / size:.2f}" for name in ("peak_bytes", "pinned_bytes", "h2d_bytes", "d2h_bytes")]
        ratio = f"{row['seconds'] / auto:.2f}" if auto else ""
        resident = f"{row['seconds'] / case['ample_resident_s']:.2f}"
        rows.append((row["setting"], ratio, resident, *shares, "yes" if row["same_picture"] else "no"))
    heads = ("setting", "time / ours, auto", "time / resident in ample memory", "peak", "pinned", "to the device")
    return grid((*heads, "to the host", "same picture"), rows)


def gpu(found: Mapping[str, Any]) -> list[str]:
    """Every part that was answered, in the order of their letters."""
    kind = "a simulated device: a rehearsal, no figure counts" if found["simulated"] else found["device_name"]
    lines = [f"Measured on {kind}."]
    parts = {"a": gpu_equality, "b": gpu_copies, "c": gpu_settings, "d": gpu_plans, "e": gpu_sanitizers}
    for letter, table in parts.items():
        if letter in found["parts"]:
            lines += ["", *table(found["parts"][letter])]
    if "f" in found["parts"]:
        counts = ", ".join(f"{name}: {count}" for name, count in found["parts"]["f"].items())
        lines += ["", f"(f) Graphs compiled: {counts}."]
    if found["left_out"]:
        lines += ["", f"Left out because time was up: {', '.join(found['left_out'])}."]
    return lines


def gpu_equality(part: Mapping[str, Any]) -> list[str]:
    different = part["different"]
    text = f"(a) {part['cases']} placements of tiny pipelines beside everything resident, deterministic kernels: "
    return [text + ("all bit-equal." if not different else f"different: {'; '.join(different)}.")]


def gpu_copies(part: Mapping[str, Any]) -> list[str]:
    streamed = part["streamed"]
    goal = f"goal {streamed['goal']:.0%}, {verdict(streamed['share'] >= streamed['goal'])}"
    rates = [(name, f"{part[name]:.1f}") for name in part if name.endswith("_gbps") and part[name] is not None]
    first = ("share of the pinned rate that a streamed step reaches", f"{streamed['share']:.1%}, {goal}")
    return ["(b) Copies, GB/s:", "", *grid(("figure", "measured"), [first, *rates])]


def gpu_settings(part: Mapping[str, Any]) -> list[str]:
    lines = ["(c) A step over the larger of compute and copies, and over that of everything resident:"]
    heads = ("setting", "/ max(compute, copy)", "/ resident", "s a step", "device peak", "host peak", "same picture")
    for model, case in part.items():
        rows = []
        for row in case["rows"]:
            if "step_s" not in row:
                rows.append((row["setting"], row["why"], *[""] * 5))
                continue
            ratio = f"{row['over_bound']:.2f}" if "over_bound" in row else ""
            beside = f"{row['step_s'] / row['compute_s']:.2f}" if "compute_s" in row else ""
            sizes = [f"{(row[name] or 0) / 2**30:.2f} GiB" for name in ("device_peak_bytes", "host_peak_bytes")]
            same = "yes" if row["same_picture"] else "no"
            rows.append((row["setting"], ratio, beside, f"{row['step_s']:.4f}", *sizes, same))
        lines += ["", f"### {model}", "", *grid(heads, rows)]
    return lines


def gpu_plans(part: Mapping[str, Any]) -> list[str]:
    rows = []
    for model, stages in part.items():
        for stage, one in stages.items():
            ratios = []
            for kind in ("s", "peak_bytes"):
                expected, measured = one[f"expected_{kind}"], one[f"measured_{kind}"]
                ratios.append(f"{expected / measured:.2f}" if expected and measured else "")
            rows.append((model, stage, *ratios))
    return ["(d) What the plan said over what was measured:", "", *grid(("model", "stage", "time", "peak"), rows)]


def gpu_sanitizers(part: Mapping[str, Any]) -> list[str]:
    return [
        "(e) Sanitizers:",
        "",
        *grid(("tool", "exit", "said"), [(n, str(o["rc"]), o["said"]) for n, o in part.items()]),
    ]


def plan_vs_published(found: Mapping[str, Any]) -> list[str]:
    """Errors first, then every row, then what those that are far off have left out."""
    groups = [
        (name, str(one["rows"]), _factor(one["median_factor"]), _factor(one["largest_factor"]), str(one["within_1.3"]))
        for name, one in found["summary"].items()
    ]
    rows = [
        (
            row["name"],
            "held out" if row["hold_out"] else "",
            *(_beside(row, "published_s", "foretold_s", "time_ratio", "s")),
            *(_beside(row, "published_gb", "foretold_gb", "memory_ratio", "GB")),
            row["bound_by"],
        )
        for row in found["rows"]
    ]
    heads = ("row", "", "published", "foretold", "ratio", "published", "foretold", "ratio", "bound by")
    why = [f"- {row['name']}: {row['why']}" for row in found["rows"] if row["why"]]
    left = [f"- {name}: not explained" for name in found["unexplained"]]
    return [
        *grid(("errors as factors, either way", "rows", "median", "largest", "within 1.3"), groups),
        "",
        *grid(heads, rows),
        "",
        *why,
        *left,
    ]


def _factor(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _beside(row: Mapping[str, Any], published: str, foretold: str, ratio: str, unit: str) -> tuple[str, str, str]:
    if published not in row:
        return ("", "", "")
    return (f"{row[published]:.4g} {unit}", f"{row[foretold]:.4g} {unit}", f"{row[ratio]:.2f}")


def scaling(found: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            row["series"],
            f"{row['exponent']:.2f}",
            verdict(row["holds"]),
            ", ".join(str(size) for size in row["sizes"]),
            ", ".join(f"{1e3 * cost:.3g}" for cost in row["seconds"]),
        )
        for row in found["series"]
    ]
    goal = f"at most {found['limit']}, or under {1e3 * found['noise_s']:.0f} ms in all"
    return grid(("what grows", f"exponent of the last two steps ({goal})", "goal", "sizes", "ms of one thread"), rows)
