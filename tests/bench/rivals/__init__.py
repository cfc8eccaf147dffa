"""Other servers with the same model: programs that run with packages of their own, which nothing else here imports."""
