"""Rendering of an answer as one self-contained HTML page. It loads nothing, and the same answer gives the same bytes."""
