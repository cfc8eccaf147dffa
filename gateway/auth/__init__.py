"""Who may come in, as whom, how often; and what they did with it."""
