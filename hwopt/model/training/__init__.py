"""Model of a training run: step schedule, memory footprint, batch ramps, scaling laws."""
