"""A ResNet-style network with an early exit: an easy image is answered by the first classifier, the others go through the whole network."""
import logging

import torch
import torch.nn as nn
from torch.nn import functional as F

log = logging.getLogger(__name__)


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels_out, stride=1):
        super().__init__()
        self.convolution_1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.norm_1 = nn.BatchNorm2d(channels_out)
        self.convolution_2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm_2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out))

    def forward(self, x):
        y = F.relu(self.norm_1(self.convolution_1(x)))
        y = self.norm_2(self.convolution_2(y))
        return F.relu(y + self.shortcut(x))


class DigitNet(nn.Module):
    """images: (batch, 1, 16, 16) floats from 0 to 1. Returns logits (batch, 10); in training mode those of both classifiers.

    In evaluation mode the first classifier answers where it is sure enough of every image of the batch (``threshold``)."""

    def __init__(self, channels=16, threshold=0.9):
        super().__init__()
        self.threshold = threshold
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.stage_1 = ResidualBlock(channels, channels)
        self.early = nn.Linear(16 * channels, 10)
        self.stage_2 = ResidualBlock(channels, 2 * channels, stride=2)
        self.stage_3 = ResidualBlock(2 * channels, 4 * channels, stride=2)
        self.late = nn.Linear(4 * channels, 10)
        self.early_exits = 0

    def forward(self, images):
        x = self.stage_1(self.stem((images - 0.5) / 0.5))
        early = self.early(F.adaptive_avg_pool2d(x, 4).flatten(1))
        mean, deviation = x.mean(), x.std()
        log.info("activations after stage 1: mean %.4f, deviation %.4f", mean.item(), deviation.item())
        if not self.training:
            confidence = F.softmax(early, dim=-1).amax(dim=-1)
            if confidence.min() > self.threshold:
                self.early_exits += 1
                return early
        x = self.stage_3(self.stage_2(x))
        late = self.late(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return (late, early) if self.training else late


def train_step(model, optimizer, images, labels):
    """One step; returns the loss as a float."""
    late, early = model(images)
    loss = F.cross_entropy(late, labels) + F.cross_entropy(early, labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def accuracy(model, images, labels):
    return (model(images).argmax(dim=-1) == labels).float().mean().item()
