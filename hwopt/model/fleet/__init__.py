"""Several kinds of chips that train one model together."""
