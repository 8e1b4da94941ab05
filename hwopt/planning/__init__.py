"""Best parallel plan of a given cluster, by exhaustive evaluation."""
