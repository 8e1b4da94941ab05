"""Export of a serving plan as launch settings of a serving engine, one module for each engine."""
