"""What the graph recorder knows of torch's functions beyond recording their calls."""
