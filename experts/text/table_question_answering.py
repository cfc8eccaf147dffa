"""Table question answering: a model selects cells and how to aggregate them (TAPAS)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import NO_ANSWER, UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.text.tables import Table, read_table
from experts.text.token_windows import too_large_error
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.torch_host.token_limits import MAX_CHARACTERS_PER_TOKEN, max_input_tokens
from experts.torch_host.torch_handler import TorchHandler

MAX_CELLS = 10_000
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?|[-+]?\.\d+")


@dataclass(frozen=True)
class TableItem:
    """Question of one call about a table."""

    encoded: Any
    table: Table


@dataclass(frozen=True)
class TableAnswer:
    """Cells that the model selected, by row and column, and their aggregation."""

    cells: list[tuple[int, int]]
    aggregator: str
    table: Table


def table_question_answering(model_id: str, device: str) -> Handler:
    """Loads TAPAS, with or without aggregation."""
    from transformers import AutoModelForTableQuestionAnswering, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return TableQuestionAnswerer(checkpoint, checkpoint.model(AutoModelForTableQuestionAnswering), tokenizer)


class TableQuestionAnswerer(TorchHandler):
    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._max_input_tokens = tokenizer, max_input_tokens(tokenizer, model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> TableItem:  # noqa: ARG002  # the task has none
        from pandas import DataFrame

        question = inputs["question"]
        if len(question) > self._max_input_tokens * MAX_CHARACTERS_PER_TOKEN:
            raise too_large_error(
                self.model_id, "question", f"{len(question)} characters", f"{self._max_input_tokens} tokens"
            )
        table = read_table(inputs["table"])
        if table.size > MAX_CELLS:
            raise too_large_error(self.model_id, "table", f"{table.size} cells", f"{MAX_CELLS} cells")
        frame = DataFrame(table.rows, columns=table.header, dtype=str)
        try:
            encoded = self._tokenizer(table=frame, queries=question, return_tensors="pt", truncation=False)
        except ValueError as error:  # the tokenizer has embeddings for a limited number of rows and columns
            raise too_large_error(self.model_id, "table", f"{len(table.rows)} rows", "smaller") from error
        if (length := encoded["input_ids"].shape[1]) > self._max_input_tokens:
            raise too_large_error(
                self.model_id, "table", f"{length} tokens, with the question", f"{self._max_input_tokens} tokens"
            )
        return TableItem(encoded, table)

    def cost(self, item: TableItem) -> float:
        return int(item.encoded["input_ids"].shape[1])

    def run(self, items: Sequence[TableItem], call: Call) -> list[TableAnswer]:
        return [self._answer(item) for item in items if not call.cancelled]

    def finish(self, raw: TableAnswer) -> Outputs:
        cells = [raw.table.rows[row][column] for row, column in raw.cells]
        answer = _aggregate(cells, raw.aggregator)
        details = {"answer": answer, "cells": cells, "aggregator": raw.aggregator}
        return {"text": answer or NO_ANSWER, "details": details}

    def _answer(self, item: TableItem) -> TableAnswer:
        with inference_context(self.model_id):
            output = self.model(**move_to_device(item.encoded, self.model))
            logits = require_finite(output.logits.float().cpu(), self.model_id)
            aggregation = getattr(output, "logits_aggregation", None)
            index = None if aggregation is None else int(aggregation.float().argmax(-1))
            ((cells,),) = self._tokenizer.convert_logits_to_predictions(item.encoded, logits)
        names = getattr(self.model.config, "aggregation_labels", None) or {}
        return TableAnswer(sorted(cells), str(names.get(index, "NONE")), item.table)


def _aggregate(cells: Sequence[str], aggregator: str) -> str:
    """Returns the cells, their count, or the sum or average of their numbers; the cells if one has no number."""
    if not cells or aggregator == "NONE":
        return ", ".join(cells)
    if aggregator == "COUNT":
        return str(len(cells))
    numbers = [match[0].replace(",", "") for cell in cells if (match := _NUMBER.search(cell))]
    if len(numbers) < len(cells):
        return ", ".join(cells)
    total = sum(map(float, numbers))
    return f"{total / len(cells) if aggregator == 'AVERAGE' else total:.10g}"
