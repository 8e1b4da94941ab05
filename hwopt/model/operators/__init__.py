"""Work, time and memory of a model that is stated as a table of operators."""
