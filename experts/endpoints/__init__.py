"""What experts share whose models run at an endpoint: who may ask, how often, what refusals mean, prompts, results."""
