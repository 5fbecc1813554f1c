"""Cleaning and describing a signal, block by block."""
from spectra.pipeline import Follower, describe

__all__ = ["Follower", "describe"]
