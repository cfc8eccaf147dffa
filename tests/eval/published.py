"""Published results for TaskBench's Hugging Face tools, and of the HuggingGPT paper for its own requests; percent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """Node and edge F1 over TaskBench's full set, which has more requests than the file here."""

    planner: str
    node_f1: float
    edge_f1: float
    source: str


ROWS = (
    Row("GPT-4", 81.54, 54.70, "microsoft/JARVIS, taskbench"),
    Row("Claude 2", 79.00, 43.51, "microsoft/JARVIS, taskbench"),
    Row("GPT-3.5", 69.49, 33.36, "microsoft/JARVIS, taskbench"),
    Row("Qwen3-235B", 82.8, 45.6, "a third party, the first 500 requests"),
    Row("Qwen2.5-7B, fine-tuned in domain", 84.4, 47.8, "a third party, 500 requests"),
)

PAPER = {
    "single accuracy": ("52.62", "–"),
    "single precision": ("62.12", "–"),
    "single recall": ("52.62", "–"),
    "single f1": ("54.45", "–"),
    "sequential accuracy": ("–", "41.36"),
    "sequential f1": ("51.92", "–"),
    "sequential edit distance": ("0.54", "0.61"),
    "graph accuracy": ("–", "58.33"),
    "graph f1": ("51.91", "49.28"),
    "graph GPT-4 score": ("50.48", "–"),
    "plan passing rate": ("91.22", "–"),
    "plan rationality": ("78.47", "–"),
    "end-to-end success": ("63.08", "–"),
}
"""Tables of the HuggingGPT paper (arXiv 2303.17580): GPT-3.5, and GPT-4 on the 46 requests that people labelled. Its
requests differ from those here, so the values are for orientation only."""
