"""One module for each command: its flags, and the function that answers it."""
