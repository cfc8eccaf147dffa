"""Shared code of the torch modalities: devices and dtypes, safetensors checkpoints, generation, classification."""
