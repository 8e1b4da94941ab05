"""Model of one accelerator: roofline kernel times, silicon areas, manufacturing cost, heat and sustained clock."""
