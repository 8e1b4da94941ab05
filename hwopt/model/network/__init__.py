"""Network model: collectives and routes over nested tiers, switch counts, training across several sites."""
