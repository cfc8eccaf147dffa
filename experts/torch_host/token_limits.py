"""How many tokens a model takes."""

from typing import Any

_USUAL = 512
_UNLIMITED = 1_000_000
"""From here on a tokenizer's limit means that it has none."""
_SHIFTED = {"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "longformer"}
"""Their positions begin behind that of padding."""


def longest(tokenizer: Any, config: Any) -> int:
    """Most tokens in one input, special ones included: as the tokenizer says, as positions allow, else 512."""
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    if positions and text.model_type in _SHIFTED:
        positions -= (text.pad_token_id or 0) + 1
    said = tokenizer.model_max_length if tokenizer.model_max_length < _UNLIMITED else None
    return min((limit for limit in (positions, said) if limit and limit > 0), default=_USUAL)
