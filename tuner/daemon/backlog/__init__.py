"""Jobs that the daemon chooses by itself, and its background tasks."""
