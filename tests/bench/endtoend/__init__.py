"""Duration of whole runs through the gateway in addition to their critical path, by controllers."""
