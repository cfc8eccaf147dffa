"""A second of training, so that what a tiny model should say is known."""

from collections.abc import Callable, Mapping
from typing import Any


def taught(
    model: Any, loss: Callable[[Any], Any], *, steps: int = 600, rate: float = 5e-3, enough: float = 0.02
) -> Any:
    """The model, fitted until the loss is small enough; fails if it never gets so small.

    Args:
        model: any torch module.
        loss: of the whole lesson, given the model.
        steps: most.
        rate: of learning.
        enough: the loss at which it knows the lesson.
    """
    import torch

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        error = loss(model)
        if error.item() < enough:
            return model.eval()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    raise AssertionError(f"{type(model).__name__} did not learn its lesson: the loss is {error.item():.3f}")


def lesson(tokenizer: Any, pairs: Mapping[str, str]) -> tuple[Any, Any]:
    """Inputs and labels of an encoder with a decoder."""
    batch = tokenizer(list(pairs), padding=True, return_tensors="pt")
    targets = tokenizer(text_target=list(pairs.values()), padding=True, return_tensors="pt")
    return batch, targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)
