"""hugginggpt trace: what took how long in a run."""
