"""The HTTP interface: application, middleware, routes and server-sent events."""
