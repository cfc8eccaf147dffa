"""Authentication of callers, API keys, JWTs, signed links and the audit log."""
