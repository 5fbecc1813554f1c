"""A training step, and the characters to train on."""
from pathlib import Path

import torch


class Characters:
    """Text as integers, one per character."""

    def __init__(self, text):
        self.letters = sorted(set(text))
        self.numbers = {letter: number for number, letter in enumerate(self.letters)}
        self.data = torch.tensor(self.encode(text), dtype=torch.long)

    @classmethod
    def from_file(cls, path):
        return cls(Path(path).read_text(encoding="utf-8"))

    def encode(self, text):
        return [self.numbers[letter] for letter in text]

    def decode(self, tokens):
        return "".join(self.letters[int(token)] for token in tokens)

    def batch(self, size, length, generator):
        """(inputs, targets), each (size, length), from random places."""
        starts = torch.randint(len(self.data) - length, (size,), generator=generator)
        inputs = torch.stack([self.data[start:start + length] for start in starts])
        targets = torch.stack([self.data[start + 1:start + 1 + length] for start in starts])
        return inputs, targets


def train_step(model, optimizer, inputs, targets, clip=1.0):
    """One step; returns the loss as a float."""
    _, loss = model(inputs, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()
