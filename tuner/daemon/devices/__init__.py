"""One lane per device: what is done next in it, and when it may be."""
