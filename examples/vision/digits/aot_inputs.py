"""What aotcompile builds for. Read by the build only."""
import torch

from digits.drawing import batch
from digits.model import DigitNet


def make_model():
    torch.manual_seed(0)
    return DigitNet(threshold=0.6)


def training():
    images, _ = batch(32, torch.Generator().manual_seed(1))
    return make_model().train(), (images,)


def inference():
    images, _ = batch(8, torch.Generator().manual_seed(2))
    return make_model().eval(), (images,)
