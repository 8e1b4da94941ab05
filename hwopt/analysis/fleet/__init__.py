"""The fastest shares and plans of a mixed-generation fleet."""
