"""Results have eager's strides, those of dimensions of size 1 and of tensors without elements as well."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import aotcompile

LAYOUTS = {
    "transposed": torch.randn(1, 5).t(),
    "channels_last": torch.randn(2, 1, 4, 3).contiguous(memory_format=torch.channels_last),
    "channels_last_3d": torch.randn(2, 1, 4, 3, 2).contiguous(memory_format=torch.channels_last_3d),
    "batch_of_one": torch.randn(1, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "every_other": torch.randn(4, 6)[:, ::2][:1],
    "permuted": torch.randn(1, 3, 1, 4).permute(3, 0, 2, 1),
    "empty": torch.empty(3, 0, 1, 2).permute(2, 0, 3, 1),
}


def results(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ordered, order = t.sort(-1)
    return (
        torch.zeros_like(t), t * 0, t + t, t.exp(), torch.where(t > 0, t, -t), t.clone(), t.to(torch.float64), t.bool(), t.contiguous(),
        t.sum(-1, keepdim=True), t.mean((0, -1), keepdim=True), torch.cat([t, t]), torch.stack([t, t]), t.cumsum(-1), t.softmax(-1), t.flip(0),
        t.roll(1, 0), t.unsqueeze(0) + 1, t.expand(2, *t.shape) + 1, t.mT.exp(), F.pad(t, (0, 1)), t.tril(), ordered, order, torch.addcmul(t, t, t),
        t.masked_fill(t > 0, 1), F.gelu(t), F.layer_norm(t, t.shape[-1:]), F.rms_norm(t, t.shape[-1:]), t.tile((2,) + (1,) * (t.dim() - 1)),
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_of_results(name: str) -> None:
    given = LAYOUTS[name]
    compiled = aotcompile.compile(results, example_inputs=((given,), {}))
    for number, (found, expected) in enumerate(zip(compiled(given), results(given), strict=True)):
        assert found.stride() == expected.stride(), f"result {number} of {tuple(expected.shape)}"
        torch.testing.assert_close(found, expected, equal_nan=True)
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 0)


def one_memory(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = t + 1
    return total, total.as_strided((5, 1), (1, 9))


def test_one_memory_with_two_layouts() -> None:
    given = torch.randn(5, 1)
    compiled = aotcompile.compile(one_memory, example_inputs=((given,), {}))
    for results in (compiled(given), one_memory(given)):
        assert [result.stride() for result in results] == [(1, 1), (1, 9)]
        assert results[0].data_ptr() == results[1].data_ptr()


def views(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return t.view_as(t), t.reshape(1, 7), t.unflatten(-1, (-1, 1)), t.view(1, 1, 7) * 2, (t + 1).view(1, 7)


def test_strides_of_views() -> None:
    given = torch.zeros(1, 15)[:, 1::2]
    compiled = aotcompile.compile(views, example_inputs=((given,), {}))
    for found, expected in zip(compiled(given), views(given), strict=True):
        assert found.stride() == expected.stride() and found.storage_offset() == expected.storage_offset()
    assert compiled(given)[0].data_ptr() == given.data_ptr()
