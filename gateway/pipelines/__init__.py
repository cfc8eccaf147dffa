"""Pipelines and batches: operations shared by HTTP and gRPC, and their bodies and results."""
