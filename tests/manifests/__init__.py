"""Checks of the rendered Kubernetes manifests: rules, schemas, and network policies."""
