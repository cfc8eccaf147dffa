"""What the Kubernetes manifests promise, as rules over what they render to."""
