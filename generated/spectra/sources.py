"""A signal made by code: two tones that wander, bursts, and noise."""
import torch


def signal(blocks, samples=256, seed=0):
    """(blocks, samples) of float32."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(blocks * samples, dtype=torch.float32) / 8000.0
    tones = 0.3 * torch.sin(2 * torch.pi * (220 + 40 * torch.sin(time)) * time) + 0.1 * torch.sin(2 * torch.pi * 1760 * time)
    bursts = (torch.rand(blocks, generator=generator) > 0.85).float().repeat_interleave(samples)
    noise = torch.randn(blocks * samples, generator=generator)
    return (tones + 0.02 * noise + 0.8 * bursts * noise).view(blocks, samples)
