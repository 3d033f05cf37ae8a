"""Whole programs: the clock, the power limit and the tunables that suit any command best."""
