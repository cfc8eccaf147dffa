"""What the orchestrator counts and measures; labels are experts, states and reasons, never runs or callers."""

from opentelemetry import metrics

_meter = metrics.get_meter("hugginggpt.orchestrator")

expert_queue_depth = _meter.create_up_down_counter(
    "expert_queue_depth", description="Calls wanted of an expert that have not ended, by expert: what to scale it by."
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
circuit_open = _meter.create_up_down_counter(
    "circuit_open", description="Open circuits, by expert and kind: address or model."
)
journal_seconds = _meter.create_histogram(
    "journal_write_duration", unit="s", description="From asking for a write to its commit."
)
