"""hugginggpt trace: durations of the steps of a run."""
