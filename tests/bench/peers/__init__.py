"""Other servers with the same model, and others who run the same plans: each a program with packages of its own."""
