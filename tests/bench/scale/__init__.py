"""Cost as a function of size: tasks, models, concurrent runs, turns, bytes."""
