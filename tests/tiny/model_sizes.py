"""Sizes of tiny models."""

from collections.abc import Mapping
from typing import Any

MAX_TOKENS = 64
"""Maximum number of input tokens."""
SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": MAX_TOKENS,
    "initializer_range": 0.1,
}
SEQ2SEQ: Mapping[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": MAX_TOKENS,
    "dropout": 0.0,
    "init_std": 0.1,
}
