"""Forward and backward graphs of AOTAutograd, both lowered: values and gradients as eager's."""
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checking import check_training


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).requires_grad_()


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(F.linear(x, w, b)) @ v, (4,)).softmax(-1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_layers(dynamic: bool) -> None:
    check_training(mlp, leaf(3, 5), leaf(6, 5), leaf(6), leaf(6, 4), dynamic=dynamic)


def test_embedding_and_loss() -> None:
    check_training(lambda w, i, t, v: F.cross_entropy(F.embedding(i, w) @ v, t), leaf(7, 4), torch.tensor([1, 3, 3]), torch.tensor([0, 2, 4]), leaf(4, 5))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_convolution_and_batch_norm(memory_format: torch.memory_format) -> None:
    def run(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor, v: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), m, v, g, b, training=True)).mean((2, 3))
    x = torch.randn(2, 3, 4, 4).to(memory_format=memory_format).requires_grad_()
    check_training(run, x, leaf(4, 3, 3, 3), torch.zeros(4), torch.ones(4), leaf(4), leaf(4))


def test_dropout_draws_the_same_numbers() -> None:
    check_training(lambda x: F.dropout(x, 0.5) * 2, leaf(4, 5))


def test_bf16() -> None:
    x, w = (torch.randn(*sizes).bfloat16().requires_grad_() for sizes in ((3, 5), (5, 4)))
    check_training(lambda x, w: F.layer_norm((x @ w).tanh(), (4,)).float().sum(1), x, w, tolerance=3e-2)


def test_attention_pooling_and_indices() -> None:
    check_training(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), leaf(1, 2, 4, 8), leaf(1, 2, 4, 8), leaf(1, 2, 4, 8))
    check_training(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.interpolate(x, scale_factor=2), F.pad(x, (1, 1, 1, 1), mode="reflect")), leaf(1, 2, 4, 4))
    check_training(lambda x, i: (x[i] * 2, x.gather(0, i[:, None].expand(-1, 3)), torch.cat([x, x[i]]).cumsum(0), x[:, 1:].pow(3), x.max(1)[0], x.std()),
                   leaf(4, 3), torch.tensor([1, 1, 0]))


def test_activations() -> None:
    def run(x: torch.Tensor) -> Any:
        return (F.elu(x), F.leaky_relu(x), F.hardswish(x), F.mish(x), F.softplus(x), F.logsigmoid(x), x.clamp(-1, 1), x.abs().sqrt(), F.glu(x, 1),
                F.prelu(x, x[0, :1]), x.erf(), x.logsumexp(1), x.norm(), x.prod(1), x.amax(1))
    check_training(run, leaf(3, 4))


def test_an_input_is_changed() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(2)
        z = x + y
        y[0] = 1.0
        return z * x
    check_training(run, leaf(3, 3), torch.randn(3, 3))
