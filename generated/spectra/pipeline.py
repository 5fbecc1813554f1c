"""A pipeline of functions with numpy in the middle, and an object that keeps running state between blocks."""

from aotcompile.runtime import bind as _bind

_region = _bind(__name__, __file__)


def _original(digest):
    """Marks a rewritten function with the digest of the code it stands for."""
    def mark(function):
        function.__aotcompile_digest__ = digest
        return function
    return mark


import numpy as np
import torch

import aotcompile


def taper(blocks):
    """Blocks (number, samples) under a raised-cosine window, without their means."""
    samples = blocks.shape[-1]
    window = 0.5 - 0.5 * torch.cos(2 * torch.pi * torch.arange(samples, dtype=blocks.dtype) / samples)
    return (blocks - blocks.mean(dim=-1, keepdim=True)) * window


def _describe_r0_eager(blocks):
    tapered = taper(blocks)
    loudness = torch.sqrt(tapered.square().mean(dim=-1) + 1e-12)
    roughness = (tapered[:, 1:] - tapered[:, :-1]).abs().mean(dim=-1) / loudness
    return loudness, roughness


def _describe_r1_eager(loudness, _t0, roughness):
    _t1 = torch.log(loudness / _t0)
    distance = _t1.abs()
    return torch.stack((loudness, roughness, distance), dim=-1)


_describe_r0 = _region("describe:r0", _describe_r0_eager)  # pipeline.py:20-22, 1 variant
_describe_r1 = _region("describe:r1", _describe_r1_eager)  # pipeline.py:24-25, 1 variant


@aotcompile.entry(inputs=("f32[N, 256]",), dims={"N": (1, 64)})
@_original("cp311:d144ae8f565d1d50;source:c0bdff1e0581e49c")
def describe(blocks):
    """Features (number, 3) of blocks (number, samples): loudness, roughness, and how far each is from the typical block.

    The median and the rank come from numpy, as such code often has it: a graph break in the middle of the function."""
    loudness, roughness = _describe_r0(blocks)  # region 0: lines 20-22
    typical = np.median(loudness.numpy())  # graph break AOT204: numpy.median is called (line 23); graph break AOT203: .numpy() reads a tensor's value (line 23)
    _t0 = float(typical)  # graph break AOT204: float() looks into a numpy.float32 from outside (line 24)
    return _describe_r1(loudness, _t0, roughness)  # region 1: lines 24-25


def _Follower_feed_r0_eager(self, block):
    energy = torch.sqrt(block.square().mean())
    self.level = energy if self.blocks == 0 else self.decay * self.level + (1 - self.decay) * energy
    self.blocks += 1
    _t0 = energy > self.ratio * self.level
    return energy, _t0


def _Follower_feed_r1_eager(self, block, energy):
    gain = torch.sigmoid(8.0 * (energy / (self.level + 1e-6) - 1.0))
    return torch.tanh(block * gain)


_Follower_feed_r0 = _region("Follower.feed:r0", _Follower_feed_r0_eager)  # pipeline.py:40-43, 2 variants
_Follower_feed_r1 = _region("Follower.feed:r1", _Follower_feed_r1_eager)  # pipeline.py:45-46, 2 variants


class Follower:
    """A noise gate: follows the loudness of what it hears, and lets louder blocks through."""

    def __init__(self, decay=0.9, ratio=1.5):
        self.decay = decay
        self.ratio = ratio
        self.level = torch.tensor(0.0)
        self.blocks = 0
        self.loudest = []

    @_original("cp311:6bd5c14e08943c03;source:075ec69296318cc1")
    def feed(self, block):
        """A block (samples,): returns it through the gate; the state is updated."""
        energy, _t0 = _Follower_feed_r0(self, block)  # region 0: lines 40-43
        if _t0:  # graph break AOT202: a branch on a tensor's value (line 43)
            self.loudest.append(self.blocks)
        return _Follower_feed_r1(self, block, energy)  # region 1: lines 45-46
