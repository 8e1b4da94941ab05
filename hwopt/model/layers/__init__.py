"""Work, weights and time of one layer, shared by training and serving."""
