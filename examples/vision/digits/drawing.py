"""Images to learn from, drawn by code: the segments of a digit's seven-segment form, moved, thickened and blurred, with noise."""
import torch
from torch.nn import functional as F

SEGMENTS = ("012456", "25", "02346", "02356", "1235", "01356", "013456", "025", "0123456", "012356")
#  segment:   0 top, 1 upper left, 2 upper right, 3 middle, 4 lower left, 5 lower right, 6 bottom; as (row, column, height, width) on a 12 x 8 field
BOXES = ((0, 0, 1, 8), (0, 0, 6, 1), (0, 7, 6, 1), (5, 0, 1, 8), (6, 0, 6, 1), (6, 7, 6, 1), (11, 0, 1, 8))


def draw(digit, generator):
    """A 16 x 16 image of a digit, floats from 0 to 1."""
    image = torch.zeros(16, 16)
    down, right = (int(n) for n in torch.randint(0, 5, (2,), generator=generator))
    for segment in SEGMENTS[digit]:
        row, column, height, width = BOXES[int(segment)]
        image[down + row:down + row + height, right + column:right + column + width] = 1.0
    weights = torch.rand(1, 1, 3, 3, generator=generator) + 0.2
    image = F.conv2d(image[None, None], weights / weights.sum(), padding=1)[0, 0] * 1.6
    return (image + 0.1 * torch.randn(16, 16, generator=generator)).clamp(0, 1)


def batch(size, generator):
    """(images, labels): (size, 1, 16, 16) and (size,)."""
    labels = torch.randint(0, 10, (size,), generator=generator)
    return torch.stack([draw(int(label), generator) for label in labels])[:, None], labels
