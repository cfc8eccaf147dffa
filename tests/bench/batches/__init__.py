"""Batches: what an item costs, how busy they keep a model, and what people notice of them."""
