"""One module per answer: its JSON document and its screen."""
