"""JSON Schemas of what commands print with `--json`: numbers from their declarations, objects from this folder."""
