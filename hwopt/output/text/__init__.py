"""Helpers for text screens that several answers share."""
