"""Response models of readings: their inverse, identification, and the store of calibrations."""
