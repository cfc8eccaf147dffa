"""Short training, so that the outputs of tiny models are known."""

from collections.abc import Callable, Mapping
from typing import Any


def train(
    model: Any,
    loss: Callable[[Any], Any],
    *,
    max_steps: int = 600,
    learning_rate: float = 5e-3,
    target_loss: float = 0.02,
) -> Any:
    """Trains the model until the loss is at most the target; fails if it stays larger.

    Args:
        model: any torch module.
        loss: computes the loss of all examples.
        max_steps: maximum number of steps.
        learning_rate: of the Adam optimizer.
        target_loss: the loss at which training ends.
    """
    import torch

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(max_steps):
        error = loss(model)
        if error.item() < target_loss:
            return model.eval()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    raise AssertionError(f"{type(model).__name__} did not converge: the loss is {error.item():.3f}")


def encode_pairs(tokenizer: Any, pairs: Mapping[str, str]) -> tuple[Any, Any]:
    """Returns inputs and labels for an encoder-decoder model."""
    batch = tokenizer(list(pairs), padding=True, return_tensors="pt")
    targets = tokenizer(text_target=list(pairs.values()), padding=True, return_tensors="pt")
    return batch, targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)
