"""Capture of one region in one situation: stand-ins for what comes from outside, the graph that is recorded, and the epilogue."""
