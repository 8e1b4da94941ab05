"""FLOPs, memory traffic, weights and time of one transformer layer, shared by training and serving."""
