"""Tables of measured runs: columns, cells, rules that infer missing cells."""
