"""Best answers of all sources, and the next measurements that keep them true."""
