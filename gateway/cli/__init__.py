"""The command line program hugginggpt."""

from gateway.cli.commands import app

__all__ = ["app"]
