"""``daemon.toml`` and the kernel directories it names: what may stand there, and whom they may belong to."""
