"""The clock as a tunable: time and power over it as curves, and the search that the curves steer."""
