"""Power sensors, the meter and clock control, one file each, reached by name through ``tuner.registry``."""
