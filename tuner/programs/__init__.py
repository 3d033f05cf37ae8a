"""Whole programs: the clock, the power limit and the knobs that suit any command best."""
