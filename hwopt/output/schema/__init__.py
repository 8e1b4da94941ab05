"""Build the JSON Schemas of what commands print with `--json`.

Units and meanings of numbers come from the declared fields of result classes. The modules of this package define the shape of the
objects.
"""
