"""Branch and bound over integer designs: tree, bounds, relaxations, primal heuristics."""
