"""``tuner open``: the live page, and the proxy that stands between a browser and the daemon."""
