"""One module per command: its flags, its question and its answer."""
