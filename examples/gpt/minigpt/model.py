"""The model: token and position embeddings, blocks of causal self-attention and an MLP, tied output weights."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    vocabulary: int = 65
    block_size: int = 32          # longest context
    layers: int = 3
    heads: int = 4
    width: int = 64
    dropout: float = 0.0
    bias: bool = False


class LayerNorm(nn.Module):
    """Layer normalization with an optional bias."""

    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.width % config.heads == 0
        self.heads = config.heads
        self.dropout = config.dropout
        self.project_in = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.project_out = nn.Linear(config.width, config.width, bias=config.bias)
        self.residual_dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        batch, length, width = x.size()
        query, key, value = self.project_in(x).split(width, dim=2)
        query = query.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        key = key.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        value = value.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        return self.residual_dropout(self.project_out(y))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.expand = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.contract = nn.Linear(4 * config.width, config.width, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        return self.dropout(self.contract(F.gelu(self.expand(x))))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm_1 = LayerNorm(config.width, config.bias)
        self.attention = CausalSelfAttention(config)
        self.norm_2 = LayerNorm(config.width, config.bias)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        x = x + self.mlp(self.norm_2(x))
        return x


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Embedding(config.block_size, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = LayerNorm(config.width, config.bias)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.token_embedding.weight = self.head.weight
        self.apply(self._initialize)
        for name, parameter in self.named_parameters():
            if name.endswith(("project_out.weight", "contract.weight")):
                nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * config.layers))

    def _initialize(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens, targets=None):
        """tokens: (batch, length) ints. Returns (logits, loss): with targets all positions and the loss, without them the last position and None."""
        batch, length = tokens.size()
        assert length <= self.config.block_size, f"a context of {length} tokens, the longest is {self.config.block_size}"
        positions = torch.arange(0, length, dtype=torch.long, device=tokens.device)
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if targets is not None:
            logits = self.head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        else:
            logits = self.head(x[:, [-1], :])
            loss = None
        return logits, loss
