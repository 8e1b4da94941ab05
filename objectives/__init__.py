"""Design questions, one per file. Each is a plain dataclass of budgets and choices that states itself as a `Problem`."""
