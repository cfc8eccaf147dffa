"""The Model Context Protocol interface: tools and resources over HTTP and over standard input and output."""
