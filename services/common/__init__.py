"""What every process stands on: servers, channels, errors, settings, logs, artifacts, databases."""
