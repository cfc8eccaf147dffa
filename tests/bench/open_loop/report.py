"""Rows and curves of a measurement at rising rates."""

from collections import Counter
from collections.abc import Iterator

from tests.bench.capacity import BUSY
from tests.bench.curves import Curve, Measured
from tests.bench.open_loop.closed_loop import CALLERS
from tests.bench.open_loop.knee import COMPLETED_SHARE, LONGEST_SECONDS
from tests.bench.open_loop.measurement import SECONDS, Measurement
from tests.bench.open_loop.samples import LATE_SECONDS, Ending, Point
from tests.bench.rows import Row, gap

GOODPUT_SHARE, REFUSAL_MS, ERROR_PERCENT = 0.9, 250.0, 25.0
"""Targets: goodput above the knee, delay of a refusal, error of the simulation."""


def results(measured: Measurement) -> list[Measured]:
    found = measured.knee
    if not found:
        why = "the lowest rate already exceeded the bounds, or the load generator had too little CPU"
        return [gap("load.knee_runs_per_s", "/s", None, why), *_curves(measured)]
    return [*_knee(measured, found), *_past(measured, found), *_capacity(measured, found), *_curves(measured)]


def _knee(measured: Measurement, found: Point) -> Iterator[Row]:
    bounds = f"p99 ≤ {LONGEST_SECONDS:g} s and {100 * COMPLETED_SHARE:g} % completed in the better attempt"
    note = f"runs of one task, random arrivals, highest rate with {bounds}; reference: {CALLERS} closed-loop callers"
    yield Row("load.knee_runs_per_s", round(found.goodput, 1), "/s", reference=round(measured.closed, 1), note=note)
    for share in (0.5, 0.95, 0.99):
        unloaded = round(_ms(measured.rising[0], share), 1)
        note = "at the knee, from when a run was due; reference: without load"
        yield Row(f"load.knee_p{100 * share:g}_ms", round(_ms(found, share), 1), "ms", reference=unloaded, note=note)
    late = max(1000 * point.late for point in measured.points)
    most = f"above {1000 * LATE_SECONDS:g} ms a rate is not reported"
    note = f"99th percentile of the delay in sending a request, at the worst rate; {most}"
    yield Row("load.generator_late_ms", round(late, 1), "ms", note=note)


def _past(measured: Measurement, found: Point) -> Iterator[Row]:
    for times, point in measured.past.items():
        name = f"load.goodput_kept_{times:g}x"
        if not point.valid:
            yield gap(name, "x", GOODPUT_SHARE, "the load generator had too little CPU", at_least=True)
            continue
        counts = f"{len(point.of('completed'))} completed, {len(point.of('refused'))} refused, {_lost(point)} lost"
        note = f"{point.goodput:.1f} a second of {point.offered:.1f} offered, over the knee's; {counts}"
        yield Row(name, round(point.goodput / found.goodput, 2), "x", GOODPUT_SHARE, note=note, at_least=True)
    yield from _refusals(measured)
    lost = Counter(sample.failure for point in measured.points for sample in point.of("failed"))
    note = "requests, at all these rates, that were neither refused with 429 nor completed"
    most = "".join(f"; {count} x {why}" for why, count in lost.most_common(2))
    yield Row("load.lost", lost.total(), "", 0, note=note + most)


def _refusals(measured: Measurement) -> Iterator[Row]:
    refused = [sample for point in measured.past.values() if point.valid for sample in point.of("refused")]
    if not refused:
        yield gap("load.refusal_ms", "ms", REFUSAL_MS, "nothing was refused")
        return
    all_of_them = Point(refused, SECONDS)
    note = f"median delay of a 429 response; 99th percentile {_ms(all_of_them, 0.99, 'refused'):.0f} ms"
    yield Row("load.refusal_ms", round(_ms(all_of_them, 0.5, "refused"), 1), "ms", REFUSAL_MS, note=note)
    without = sum(not sample.has_retry_after for sample in refused)
    yield Row("load.refusals_without_retry_after", without, "", 0, note=f"of {len(refused)}")


def _capacity(measured: Measurement, found: Point) -> Iterator[Row]:
    cores, whole, knee = measured.model.cores, sum(measured.seconds.values()), round(found.goodput, 1)
    yield from _predicted(measured.predicted(), knee)
    formula = BUSY * cores / whole
    note = f"formula of README.md: {BUSY:g} x {cores} cores over {1000 * whole:.1f} ms a run; reference: the knee"
    yield Row("capacity.formula_runs_per_s", round(formula, 1), "/s", reference=knee, note=note)
    note = f"share of {cores} cores that runs use at the knee; the formula allows {BUSY:g}"
    yield Row("capacity.busy_at_knee", round(found.goodput * whole / cores, 2), "", BUSY, note=note, at_least=True)


def _predicted(predicted: Point | None, knee: float) -> Iterator[Row]:
    if not predicted:
        yield gap("capacity.predicted_off_percent", "%", ERROR_PERCENT, "the simulation has no knee at these rates")
        return
    note = "knee of a simulation of these processes on these cores; reference: the measured knee"
    yield Row("capacity.predicted_runs_per_s", round(predicted.goodput, 1), "/s", reference=knee, note=note)
    off = 100 * abs(predicted.goodput / knee - 1)
    note = "difference between the simulated and the measured knee"
    yield Row("capacity.predicted_off_percent", round(off, 1), "%", ERROR_PERCENT, note=note)


def _curves(measured: Measurement) -> Iterator[Curve]:
    points = sorted(measured.points, key=lambda point: point.offered)
    valid = [point for point in points if point.valid and point.of("completed")]
    latencies = {
        f"p{100 * share:g}": [(point.offered, _ms(point, share)) for point in valid] for share in (0.5, 0.95, 0.99)
    }
    rate = "offered (runs a second)"
    yield Curve("load.latency", "Latency of runs with random arrivals", rate, "latency (ms)", latencies, fitted=False)
    yield Curve(
        "load.goodput",
        "Goodput over offered rate",
        rate,
        "completed (runs a second)",
        {
            "measured": [(point.offered, point.goodput) for point in valid],
            "simulated": [(point.offered, measured.simulated(point.offered).goodput) for point in valid],
        },
        fitted=False,
    )


def _ms(point: Point, share: float, ending: Ending = "completed") -> float:
    return 1000 * point.latency(share, ending)


def _lost(point: Point) -> int:
    return len(point.of("failed"))
