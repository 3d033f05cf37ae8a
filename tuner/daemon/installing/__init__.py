"""Units, users and directories: what makes the daemon a service of a machine."""
