"""What happens now, for those who watch: one stream of all events, and the power of the devices."""
