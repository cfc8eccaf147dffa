"""All services on one machine: `python -m services.local`."""
