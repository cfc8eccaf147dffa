"""What the torch modalities share: devices and dtypes, checkpoints in safetensors, generation and classification."""
