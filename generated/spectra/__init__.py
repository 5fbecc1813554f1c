"""Cleaning and describing a signal, block by block."""
from .pipeline import Follower, describe

__all__ = ["Follower", "describe"]
