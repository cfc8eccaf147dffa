"""Metrics of the orchestrator; labels are experts, states and reasons, never runs or callers."""

from opentelemetry import metrics

from protos.hugginggpt import semantic_conventions as names

_meter = metrics.get_meter("hugginggpt.orchestrator")

expert_queue_depth = _meter.create_up_down_counter(
    "expert_queue_depth",
    description="Calls of an expert, waiting or running, by expert and model: the value to scale it by.",
)
run_seconds = _meter.create_histogram(
    names.RUN_SECONDS, unit="s", description="Duration of ended runs from their acceptance, by state."
)
task_seconds = _meter.create_histogram(
    "task_duration",
    unit="s",
    description="Duration of tasks from when their inputs are available, by kind of task, model and outcome: "
    "succeeded, reused or failed.",
)
runs_ended = _meter.create_counter("runs_ended", description="Ended runs, by state and reason.")
runs_taken_over = _meter.create_counter("runs_taken_over", description="Runs taken over from another orchestrator.")
attempts_failed = _meter.create_counter(
    "attempts_failed", description="Failed calls of experts, by expert, status code and next step."
)
shadows_tried = _meter.create_counter(
    "shadows_tried",
    description="Calls of shadow models, by task, both models and outcome: same, different, failed or skipped.",
)
task_cost = _meter.create_counter(
    "task_cost",
    description="Cost of calls of experts, including failed ones, by kind of task, model and pool, in the currency of "
    "the price table.",
)
circuit_open = _meter.create_up_down_counter(
    "circuit_open", description="Open circuits, by expert and kind: address or model."
)
journal_seconds = _meter.create_histogram(
    "journal_write_duration", unit="s", description="Duration of journal writes from the request to the commit."
)

_REASONS = frozenset(
    {
        *("", "DEADLINE", "CANCELLED", "BUDGET", "UNPLANNABLE", "UNPLANNED", "CLARIFY", "INTERNAL", "POLICY"),
        *("TASK_UNAVAILABLE", "INVALID", "NOT_FOUND", "MODEL", "TASK", "ARTIFACT", "FILE_TYPE", "TOO_LARGE", "PLAN"),
        *("REVISION", "CORRUPT", "OVERLOADED", "OUT_OF_MEMORY", "MODEL_FAILED", "LOAD_FAILED", "UNAVAILABLE"),
        *("UNIMPLEMENTED", "EXPERT_DORMANT", "CIRCUIT_OPEN", "FAILED_PRECONDITION", "PERMISSION_DENIED", "EXPIRED"),
    }
)


def reason(code: str) -> str:
    """The reason a run ended, as a label value: reasons that this deployment does not define become OTHER."""
    return code if code in _REASONS else "OTHER"
