"""Readers of packages that contain the schemas of custom resources."""
