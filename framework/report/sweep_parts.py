"""The parts of a sweep's report that show figures: what is best, forecasts, memory against time, failures. No torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from framework.report.charts import legend
from framework.report.markup import Html, empty, join, table, tag
from framework.report.phrases import format_bytes, format_exact, format_seconds
from framework.report.scatter import Axis, Dot, scatter
from framework.report.style import NUM_COLORS, color
from framework.report.sweep_data import DONE, STATE, JobData, SweepData
from framework.report.sweep_style import can_filter

Classes = Mapping[str, str]


def in_short(data: SweepData) -> Iterator[str]:
    """Say how the sweep ended and which jobs were fastest and smallest."""
    yield f"{len(data.jobs)} jobs: {data.counts}."
    front = data.front()
    if not front:
        yield "No job tells both its time and its memory, so none is compared."
        return
    fastest, smallest = front[0], front[-1]
    yield f"Fastest: {fastest.title}, {_placed(data, fastest)}."
    if smallest is not fastest:
        yield f"Least memory: {smallest.title}, {_placed(data, smallest)}."
        yield f"{len(front)} jobs are such that no other is both faster and smaller: the front below."


def _placed(data: SweepData, job: JobData) -> str:
    place = data.place(job)
    assert place is not None
    return f"{format_exact(place[0])} and {format_bytes(place[1])}"


def filters(axes: Mapping[str, Sequence[str]]) -> Html:
    """Return a choice for each axis that has several values; the rules of the style carry it out."""
    choices = [
        tag("label", name, tag("select", _options(name, values), id=f"f{number}"))
        for number, (name, values) in enumerate(axes.items())
        if can_filter(values)
    ]
    long = [name for name, values in axes.items() if len(values) > 1 and not can_filter(values)]
    notes = [tag("p", f"{name} has too many values to choose from here.", class_="small dim") for name in long]
    if not choices:
        return join([tag("p", "No axis has values to choose from.", class_="dim"), *notes])
    reset = empty("input", type="reset", value="Show all")
    old = tag("p", "This browser is too old to filter; all jobs are shown.", class_="nofilter small dim")
    return join([tag("form", join(choices), reset, class_="filters"), old, *notes])


def _options(name: str, values: Sequence[str]) -> Html:
    every = tag("option", "any" if name == STATE else "all", value="")
    return join([every, *(tag("option", value, value=str(index)) for index, value in enumerate(values))])


def memory_against_time(data: SweepData, classes: Classes) -> Html:
    """Return the plot of all done jobs with the front drawn through it, and the front as a table."""
    placed = [(job, place) for job in data.jobs if (place := data.place(job)) is not None]
    if not placed:
        return tag("p", "No job tells both its time and its memory.", class_="dim")
    front, fills = data.front(), _fills(data)
    names = {job.name for job in front}
    dots = [
        Dot(place[0], place[1], f"{job.title}: {_placed(data, job)}", f"#{job.name}", fills.of(job),
            classes[job.name], job.name in names)
        for job, place in placed
    ]  # fmt: skip
    kind = "device" if data.by_device_memory else "host"
    times = Axis("seconds of the simulated device" if data.virtual else "seconds of all requests", format_exact)
    plot = scatter(dots, times, Axis(f"peak of {kind} memory", _bytes), "memory against time", _steps(data, front))
    rows = [(tag("a", job.title, href=f"#{job.name}"), *_place_cells(data, job)) for job in front]
    head = ("job", "time", "memory")
    listed = table(head, rows, "The front: no other job is both faster and smaller; filters leave it as it is")
    return join([plot, fills.legend(), tag("p", _note(data), class_="small dim"), listed])


def _steps(data: SweepData, front: Sequence[JobData]) -> list[tuple[float, float]]:
    """What is possible at a time is the smallest so far."""
    points: list[tuple[float, float]] = []
    for job in front:
        place = data.place(job)
        assert place is not None
        if points:
            points.append((place[0], points[-1][1]))
        points.append((place[0], float(place[1])))
    return points


def _place_cells(data: SweepData, job: JobData) -> tuple[str, str]:
    place = data.place(job)
    assert place is not None
    return format_exact(place[0]), format_bytes(place[1])


def _note(data: SweepData) -> str:
    left_out = sum(data.place(job) is None for job in data.done)
    notes = [f"{left_out} done jobs do not tell both figures." if left_out else ""]
    if not data.by_device_memory:
        notes.append("The host's peak is that of a worker process, so of all jobs that it has had.")
    notes.append(
        "A ringed dot is on the front. Jobs may make different pictures: the front does not know which is good."
    )
    return " ".join(note for note in notes if note)


class _Fills:
    """Colours by the values of the first axis that has a few."""

    def __init__(self, axis: str | None, values: Sequence[str]) -> None:
        self._axis, self._values = axis, values

    def of(self, job: JobData) -> str:
        value = job.values.get(self._axis) if self._axis is not None else None
        return color(self._values.index(value)) if value in self._values else color(0)

    def legend(self) -> Html:
        named = [(color(number), f"{self._axis}={value}") for number, value in enumerate(self._values)]
        return legend(named) if named else Html()


def _fills(data: SweepData) -> _Fills:
    for axis, listed in data.axes.items():
        values = [value for value in listed if any(job.values.get(axis) == value for job in data.done)]
        if 1 < len(values) <= NUM_COLORS:
            return _Fills(axis, values)
    return _Fills(None, ())


def foretold(data: SweepData, classes: Classes) -> Html:
    """Return what was predicted against what was measured, as plots and as a table."""
    known = [job for job in data.done if job.figures.expected_s is not None]
    if not known:
        return tag("p", "No job had a forecast; those on a device with residency=auto have one.", class_="dim")
    fills = _fills(data)
    plots = [
        scatter(_dots(known, classes, fills, name), Axis("predicted", told), Axis(f"measured {label}", told),
                f"measured {label} over predicted {label}", alike=True)
        for name, label, told in (("s", "seconds", format_exact), ("peak_bytes", "peak memory", _bytes))
    ]  # fmt: skip
    head = ("job", "predicted time", "measured time", "", "predicted peak", "measured peak", "")
    rows = [tag("tr", _compared(job), class_=classes[job.name]) for job in known]
    without = len(data.done) - len(known)
    note = f"On the dashed line a forecast is right.{f' {without} done jobs had no forecast.' if without else ''}"
    parts = [tag("div", join(plots), class_="plots"), fills.legend(), tag("p", note, class_="small dim")]
    return join([*parts, rows_table(head, rows, "First request of each job, summed over the stages")])


def _dots(jobs: Sequence[JobData], classes: Classes, fills: _Fills, name: str) -> list[Dot]:
    dots = []
    for job in jobs:
        will, has = getattr(job.figures, f"expected_{name}"), getattr(job.figures, f"measured_{name}")
        if will is not None and has is not None:
            told = _bytes if name == "peak_bytes" else format_exact
            title = f"{job.title}: predicted {told(will)}, measured {told(has)}"
            dots.append(Dot(will, has, title, f"#{job.name}", fills.of(job), classes[job.name]))
    return dots


def _compared(job: JobData) -> Html:
    own = job.figures
    times = _pair(own.expected_s, own.measured_s, format_exact)
    peaks = _pair(own.expected_peak_bytes, own.measured_peak_bytes, _bytes)
    cells = [tag("td", text, class_="num") for text in (*times, *peaks)]
    return join([tag("td", tag("a", job.title, href=f"#{job.name}")), *cells])


def _pair(will: float | None, has: float | None, told: Callable[[float], str]) -> tuple[str, str, str]:
    off = f"{100 * (has / will - 1):+.1f} %" if will and has is not None else ""
    return "" if will is None else told(will), "" if has is None else told(has), off


def failures(data: SweepData) -> Html:
    """Return every job that is not done, with its reason and the last lines of its log."""
    parts = []
    for job in data.jobs:
        if job.status == DONE:
            continue
        heading = tag("h3", f"{job.title} ", tag("span", job.status, class_=f"status {job.status}"))
        parts += [heading, tag("p", job.error or "It has not run.", class_="error")]
        if job.last_lines:
            link = tag("a", f"{job.name}/log.txt", href=f"{job.name}/log.txt")
            parts += [
                tag("pre", "\n".join(job.last_lines), tabindex="0"),
                tag("p", "The end of ", link, class_="small"),
            ]
    return join(parts) if parts else tag("p", "None: every job is done.", class_="dim")


def all_jobs(data: SweepData, classes: Classes) -> Html:
    """Return a row for each job."""
    axes = list(data.axes)
    rows = []
    for job in data.jobs:
        link = tag("td", tag("a", str(job.number), href=f"#{job.name}"))
        took = "" if job.took_s is None else format_seconds(job.took_s)
        cells = (job.status, job.device, took, *_peaks(job), job.attempts, *(job.values.get(axis, "") for axis in axes))
        rows.append(tag("tr", link, join(tag("td", cell) for cell in cells), class_=classes[job.name]))
    return rows_table(("job", "state", "device", "took", "peak", "attempts", *axes), rows, "All jobs, as results.csv")


def _peaks(job: JobData) -> tuple[str]:
    own = job.figures
    peak = own.host_peak_bytes if own.device_peak_bytes is None else own.device_peak_bytes
    return ("" if peak is None else format_bytes(peak),)


def rows_table(head: Sequence[str], rows: Sequence[Html], caption: str) -> Html:
    """As `markup.table`, with rows that are made already."""
    return Html(table(head, (), caption).replace("<tbody></tbody>", tag("tbody", join(rows))))


def _bytes(value: float) -> str:
    return format_bytes(int(value))
