"""Conformance checks of an expert, run by `hugginggpt check-expert`."""
