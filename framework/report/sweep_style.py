"""What the report of a sweep adds to the look, and the rules that filter its jobs without a script. No torch."""

from collections.abc import Mapping, Sequence

MAX_VALUES = 200  # of a filter; a rule for each beyond would hold the page up

STYLE = """
.filters{background:var(--card);border-radius:.5rem;padding:.6rem .9rem;display:flex;flex-wrap:wrap;gap:.5rem 1rem;
align-items:end}.filters label{display:grid;font-size:.875rem;color:var(--dim);max-width:100%}
select,.filters input{font:inherit;color:var(--fg);background:var(--bg);border:1px solid var(--line);
border-radius:.3rem;padding:.35rem .5rem;max-width:18rem;min-height:2.4rem}
select:focus-visible,input:focus-visible,.dot:focus-visible,.job:focus-visible{outline:3px solid var(--accent);
outline-offset:2px}.nofilter{display:none}
@supports not selector(:has(a)){.filters{display:none}.nofilter{display:block}}
.cards{display:grid;gap:1rem .8rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,14rem),1fr));counter-reset:n}
.cards .job{counter-increment:n;scroll-margin-top:1rem}.cards .job:target{outline:3px solid var(--accent)}
.cards .none{background:var(--card);border-radius:.4rem;aspect-ratio:16/9;display:grid;place-items:center}
.count::after{content:counter(n)}
.plots{display:grid;gap:1.2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr))}
.area{position:relative;height:18rem;border:1px solid var(--line);border-radius:.3rem;background:var(--card)}
.area svg{position:absolute;inset:0;width:100%;height:100%}polyline{fill:none;stroke:var(--dim);stroke-width:1.5px}
.front{stroke:var(--fg);stroke-width:2px}.diagonal{stroke-dasharray:5 4}
.dot{position:absolute;width:.8rem;height:.8rem;border-radius:50%;transform:translate(-50%,50%);opacity:.85}
.dot::after{content:"";position:absolute;inset:-.4rem;border-radius:50%}
.dot.marked{width:1.1rem;height:1.1rem;border:3px solid var(--fg);opacity:1}
.pixel{image-rendering:pixelated}
td.num{font-variant-numeric:tabular-nums;white-space:nowrap}
"""


def filter_rules(axes: Mapping[str, Sequence[str]]) -> str:
    """Return a rule for each value of each axis: where it is chosen, jobs of other values are not shown."""
    return "\n".join(
        f'body:has(#f{axis} option[value="{value}"]:checked) .job:not(.f{axis}-{value}){{display:none}}'
        for axis, values in enumerate(axes.values())
        if can_filter(values)
        for value in range(len(values))
    )


def job_classes(axes: Mapping[str, Sequence[str]], values: Mapping[str, str]) -> str:
    """Return the classes by which those rules know a job."""
    found = [
        f"f{axis}-{listed.index(values[key])}"
        for axis, (key, listed) in enumerate(axes.items())
        if can_filter(listed) and values.get(key) in listed
    ]
    return " ".join(["job", *found])


def can_filter(values: Sequence[str]) -> bool:
    return 1 < len(values) <= MAX_VALUES
