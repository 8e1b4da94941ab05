"""JSON Schemas of the `--json` output of commands: numbers from their declarations, objects from this package."""
