"""Training of the embedded planner: examples, linear scores, then the steps that build a graph."""
