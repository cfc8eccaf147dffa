"""Outbound HTTP requests to user-given URLs, protected against server-side request forgery (SSRF)."""
