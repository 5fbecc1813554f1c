"""The function that ARCHITECTURE.md follows through every stage."""
import torch


def normalize(x, scale):
    centered = x - x.mean(-1, keepdim=True)
    print("largest", centered.abs().max().item())
    return torch.tanh(centered * scale)
