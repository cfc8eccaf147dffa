"""Questions about tables, answered by a model that picks cells and says what to do with them (TAPAS)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.text.table_input import Grid, read_grid
from experts.text.token_windows import too_long
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.torch_host.token_limits import max_input_tokens
from experts.torch_host.torch_handler import TorchHandler

NO_ANSWER = "The table does not say."
MOST_CELLS = 10_000
_CHARACTERS_PER_TOKEN = 24
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?|[-+]?\.\d+")


@dataclass(frozen=True)
class Asked:
    """One caller's question about a table."""

    encoded: Any
    grid: Grid


@dataclass(frozen=True)
class Picked:
    """The cells that a model picked, by row and column, and what it would do with them."""

    cells: list[tuple[int, int]]
    aggregator: str
    grid: Grid


def table_question_answering(model_id: str, device: str) -> Handler:
    """TAPAS, with or without aggregation."""
    from transformers import AutoModelForTableQuestionAnswering, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return TableReader(checkpoint, checkpoint.model(AutoModelForTableQuestionAnswering), tokenizer)


class TableReader(TorchHandler):
    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._longest = tokenizer, max_input_tokens(tokenizer, model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Asked:  # noqa: ARG002  # it has none
        from pandas import DataFrame

        question = inputs["question"]
        if len(question) > self._longest * _CHARACTERS_PER_TOKEN:
            raise too_long(self.model_id, "question", f"{len(question)} characters", f"{self._longest} tokens")
        grid = read_grid(inputs["table"])
        if grid.size > MOST_CELLS:
            raise too_long(self.model_id, "table", f"{grid.size} cells", f"{MOST_CELLS}")
        frame = DataFrame(grid.rows, columns=grid.header, dtype=str)
        try:
            encoded = self._tokenizer(table=frame, queries=question, return_tensors="pt", truncation=False)
        except ValueError as error:  # it has words for rows and columns only up to some number
            raise too_long(self.model_id, "table", f"{len(grid.rows)} rows", "no table of that size") from error
        if (length := encoded["input_ids"].shape[1]) > self._longest:
            raise too_long(self.model_id, "table", f"{length} tokens, with the question", f"{self._longest}")
        return Asked(encoded, grid)

    def cost(self, item: Asked) -> float:
        return int(item.encoded["input_ids"].shape[1])

    def run(self, items: Sequence[Asked], call: Call) -> list[Picked]:
        return [self._pick(item) for item in items if not call.cancelled]

    def finish(self, raw: Picked) -> Outputs:
        cells = [raw.grid.rows[row][column] for row, column in raw.cells]
        answer = _aggregated(cells, raw.aggregator)
        details = {"answer": answer, "cells": cells, "aggregator": raw.aggregator}
        return {"text": answer or NO_ANSWER, "details": details}

    def _pick(self, item: Asked) -> Picked:
        with inference_context(self.model_id):
            output = self.model(**move_to_device(item.encoded, self.model))
            logits = require_finite(output.logits.float().cpu(), self.model_id)
            aggregation = getattr(output, "logits_aggregation", None)
            chosen = None if aggregation is None else int(aggregation.float().argmax(-1))
            ((cells,),) = self._tokenizer.convert_logits_to_predictions(item.encoded, logits)
        names = getattr(self.model.config, "aggregation_labels", None) or {}
        return Picked(sorted(cells), str(names.get(chosen, "NONE")), item.grid)


def _aggregated(cells: Sequence[str], aggregator: str) -> str:
    """What is said of the cells: they themselves, their number, or their sum or average if they are numbers."""
    if not cells or aggregator == "NONE":
        return ", ".join(cells)
    if aggregator == "COUNT":
        return str(len(cells))
    numbers = [match[0].replace(",", "") for cell in cells if (match := _NUMBER.search(cell))]
    if len(numbers) < len(cells):
        return ", ".join(cells)
    total = sum(map(float, numbers))
    return f"{total / len(cells) if aggregator == 'AVERAGE' else total:.10g}"
