"""What the orchestrator counts and measures; labels are experts, states and reasons, never runs or callers."""

from opentelemetry import metrics

from protos.hugginggpt import semantic_conventions as names

_meter = metrics.get_meter("hugginggpt.orchestrator")

expert_queue_depth = _meter.create_up_down_counter(
    "expert_queue_depth", description="Calls wanted of an expert that have not ended, by expert: what to scale it by."
)
run_seconds = _meter.create_histogram(
    names.RUN_SECONDS, unit="s", description="Runs that have ended, from acceptance on, by state."
)
task_seconds = _meter.create_histogram(
    "task_duration",
    unit="s",
    description="Tasks done, from when what they need is there, by kind of task, model and outcome: succeeded, reused "
    "or failed.",
)
runs_ended = _meter.create_counter("runs_ended", description="Runs that have ended, by state and reason.")
runs_taken_over = _meter.create_counter("runs_taken_over", description="Runs continued here that another had begun.")
attempts_failed = _meter.create_counter(
    "attempts_failed", description="Failed calls of experts, by expert, status code and what followed."
)
shadows_tried = _meter.create_counter(
    "shadows_tried",
    description="Models on trial that were given what another had done, by task, both models and outcome: same, "
    "different, failed or left out.",
)
task_cost = _meter.create_counter(
    "task_cost",
    description="Cost of calls of experts, failed ones too, by kind of task, model and pool, in the price table's "
    "currency.",
)
circuit_open = _meter.create_up_down_counter(
    "circuit_open", description="Open circuits, by expert and kind: address or model."
)
journal_seconds = _meter.create_histogram(
    "journal_write_duration", unit="s", description="From asking for a write to its commit."
)

_REASONS = frozenset(
    {
        *("", "DEADLINE", "CANCELLED", "BUDGET", "UNPLANNABLE", "UNPLANNED", "CLARIFY", "INTERNAL", "POLICY"),
        *("VANISHED", "INVALID", "NOT_FOUND", "MODEL", "TASK", "ARTIFACT", "FILE_TYPE", "TOO_LARGE", "PLAN"),
        *("REVISION", "CORRUPT", "OVERLOADED", "OUT_OF_MEMORY", "MODEL_FAILED", "LOAD_FAILED", "UNAVAILABLE"),
        *("UNIMPLEMENTED", "ASLEEP", "CIRCUIT_OPEN", "FAILED_PRECONDITION", "PERMISSION_DENIED", "EXPIRED"),
    }
)


def reason(told: str) -> str:
    """Why a run ended, as a label: what experts make up beyond the house's own reasons is all one."""
    return told if told in _REASONS else "OTHER"
