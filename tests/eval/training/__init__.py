"""How the embedded planner learns: examples, linear scores, then the steps of graphs."""
