"""Power sensors, the meter and clock control, one file each, found by name in ``tuner.model.registry``."""
