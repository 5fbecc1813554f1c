"""A small GPT for characters, in ordinary PyTorch."""
from minigpt.model import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig"]
