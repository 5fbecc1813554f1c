"""A pipeline of functions with numpy in the middle, and an object that keeps running state between blocks."""
import numpy as np
import torch

import aotcompile


def taper(blocks):
    """Blocks (number, samples) under a raised-cosine window, without their means."""
    samples = blocks.shape[-1]
    window = 0.5 - 0.5 * torch.cos(2 * torch.pi * torch.arange(samples, dtype=blocks.dtype) / samples)
    return (blocks - blocks.mean(dim=-1, keepdim=True)) * window


@aotcompile.entry(inputs=("f32[N, 256]",), dims={"N": (1, 64)})
def describe(blocks):
    """Features (number, 3) of blocks (number, samples): loudness, roughness, and how far each is from the typical block.

    The median and the rank come from numpy, as such code often has it: a graph break in the middle of the function."""
    tapered = taper(blocks)
    loudness = torch.sqrt(tapered.square().mean(dim=-1) + 1e-12)
    roughness = (tapered[:, 1:] - tapered[:, :-1]).abs().mean(dim=-1) / loudness
    typical = np.median(loudness.numpy())
    distance = torch.log(loudness / float(typical)).abs()
    return torch.stack((loudness, roughness, distance), dim=-1)


class Follower:
    """A noise gate: follows the loudness of what it hears, and lets louder blocks through."""

    def __init__(self, decay=0.9, ratio=1.5):
        self.decay = decay
        self.ratio = ratio
        self.level = torch.tensor(0.0)
        self.blocks = 0
        self.loudest = []

    def feed(self, block):
        """A block (samples,): returns it through the gate; the state is updated."""
        energy = torch.sqrt(block.square().mean())
        self.level = energy if self.blocks == 0 else self.decay * self.level + (1 - self.decay) * energy
        self.blocks += 1
        if energy > self.ratio * self.level:
            self.loudest.append(self.blocks)
        gain = torch.sigmoid(8.0 * (energy / (self.level + 1e-6) - 1.0))
        return torch.tanh(block * gain)
