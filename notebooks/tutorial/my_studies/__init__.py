"""A design question and a chip of our own, for hwopt."""
