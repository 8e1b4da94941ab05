"""The version of hwopt, written once; packaging reads it from here."""

__version__ = "0.2.0"
