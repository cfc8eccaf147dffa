"""The gRPC interface: servicer and interceptors."""
