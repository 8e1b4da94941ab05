"""FLOPs, time and memory of a model given as a table of operators."""
