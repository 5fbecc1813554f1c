"""A residual network that reads drawn digits, in ordinary PyTorch."""
from digits.model import DigitNet

__all__ = ["DigitNet"]
