"""Maximum input length of a model, in tokens."""

from typing import Any

MAX_CHARACTERS_PER_TOKEN = 24
"""More than any prose has: a text longer than its token limit times this is rejected before it is tokenized."""

_DEFAULT = 512
_UNLIMITED = 1_000_000
"""From this value on, a tokenizer's limit means that it has none."""
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "longformer"}
"""Models whose position ids start after that of padding."""


def max_input_tokens(tokenizer: Any, config: Any) -> int:
    """Returns the maximum tokens of an input, with special ones: the lower limit of tokenizer and model, or 512."""
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    if positions and text.model_type in _OFFSET_POSITIONS:
        positions -= (text.pad_token_id or 0) + 1
    tokenizer_limit = tokenizer.model_max_length if tokenizer.model_max_length < _UNLIMITED else None
    return min((limit for limit in (positions, tokenizer_limit) if limit and limit > 0), default=_DEFAULT)
