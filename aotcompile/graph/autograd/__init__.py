"""What of a region is a node of autograd's graph: results computed from each other, and results that have nothing to do with each other."""
