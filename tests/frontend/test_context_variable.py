"""A context variable's value is guarded: set to another value, the region misses and eager's result comes."""
from contextvars import ContextVar

import torch

import aotcompile

FLAG = ContextVar("FLAG", default=1)


def scaled(x):
    return x * FLAG.get() + 1


def test_a_changed_context_variable_misses():
    compiled = aotcompile.compile(scaled, example_inputs=((torch.ones(2),), {}), backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x), x + 1)
    token = FLAG.set(5)
    assert torch.equal(compiled(x), 5 * x + 1)
    FLAG.reset(token)
    assert torch.equal(compiled(x), x + 1)
    (region,) = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (2, 1)
