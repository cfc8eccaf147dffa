"""Documents of the valid manifests."""
