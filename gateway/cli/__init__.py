"""The command line: hugginggpt."""

from gateway.cli.commands import app

__all__ = ["app"]
