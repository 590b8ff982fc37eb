"""A runner that computes nothing and takes as long as a cost model says. Core only: no tensors."""
