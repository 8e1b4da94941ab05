"""One accelerator: roofline, silicon, manufacture, heat and clock."""
