"""The queue: jobs, what clients and the daemon itself order, and who follows what happens to them."""
