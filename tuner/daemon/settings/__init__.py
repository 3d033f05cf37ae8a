"""``daemon.toml``: its tables, how the file is read and checked, and what it means in sentences."""
