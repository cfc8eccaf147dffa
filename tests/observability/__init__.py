"""What is asked of Prometheus by dashboards, alerts and scalers."""
