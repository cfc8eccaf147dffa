"""Checks the Prometheus queries of dashboards, alerts and scalers."""
