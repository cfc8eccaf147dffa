"""The foundation of every process: servers, channels, errors, settings, telemetry, artifacts, databases."""
