"""HTTP and JSON over a Unix socket: the face of the daemon."""
