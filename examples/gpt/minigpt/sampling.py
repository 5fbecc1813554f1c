"""Generating text: a loop that ends when the model says so, which no static graph can hold."""
import torch
from torch.nn import functional as F


@torch.no_grad()
def sample(model, tokens, stop_token, limit=64, temperature=0.8, top_k=10):
    """Append tokens to ``tokens`` (1, length) until ``stop_token`` is drawn or ``limit`` tokens are there; returns the longer tensor."""
    token = tokens[:, -1:]
    count = 0
    while token.item() != stop_token and count < limit:
        context = tokens[:, -model.config.block_size:]
        logits, _ = model(context)
        logits = logits[:, -1, :] / temperature
        kept, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        logits = logits.masked_fill(logits < kept[:, [-1]], float("-inf"))
        token = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
        tokens = torch.cat((tokens, token), dim=1)
        count += 1
    return tokens
