"""Expert whose calls report their start and block until released: `python -m experts.host …/blocking_expert`."""
