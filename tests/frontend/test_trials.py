"""What eager does with a call, learned by making it on made-up memory."""
from __future__ import annotations

from typing import Any

import torch

from aotcompile.frontend.torch_private import new_fake_mode, new_size
from aotcompile.frontend.capture.operators.trials import MOST_BYTES, outcome_of, raises


def fakes(*tensors: torch.Tensor) -> list[Any]:
    mode = new_fake_mode()
    return [mode.from_tensor(tensor) for tensor in tensors]


def test_looks_of_results() -> None:
    x, = fakes(torch.rand(4, 5).t())
    outcome = outcome_of(torch.Tensor.add, (x, 1), {}, x)
    assert outcome is not None and outcome.error is None
    assert [(look.dtype, look.sizes, look.strides, look.fresh) for look in outcome.looks] == [(torch.float32, (5, 4), (1, 5), True)]
    outcome = outcome_of(torch.Tensor.add_, (x, 1), {}, x)
    assert outcome is not None and not outcome.looks[0].fresh


def test_memory_is_shared_as_the_arguments_share_it() -> None:
    with new_fake_mode():
        x = torch.empty(6)
        outcome = outcome_of(torch.Tensor.copy_, (x[1:], x[:-1]), {}, x[1:])
        wide = torch.empty(1).expand(4)
    assert outcome is not None and "refer to a single memory location" in str(outcome.error)
    outcome = outcome_of(torch.Tensor.add_, (wide, 1), {}, wide)
    assert outcome is not None and "refers to a single memory location" in str(outcome.error)


def test_elements_that_were_made_up_are_not_to_blame() -> None:
    x, whole, mask = fakes(torch.rand(3, 3), torch.ones(3, 3, dtype=torch.int64), torch.tensor([True, False, True]))
    assert outcome_of(torch.linalg.cholesky, (x,), {}, x) is None                       # of halves, and of ones: not positive definite
    assert not raises(torch.Tensor.__floordiv__, (whole, whole), {}, whole, {})         # by zero, but not by one
    assert outcome_of(torch.Tensor.__setitem__, (x, mask, fakes(torch.rand(2, 3))[0]), {}, None) is None


def test_what_is_not_tried() -> None:
    large, small = fakes(torch.rand(MOST_BYTES // 4 + 1), torch.rand(3))
    assert outcome_of(torch.Tensor.add, (large, 1), {}, large) is None
    assert outcome_of(lambda x: x.fill_(1), (small,), {}, small) is None                # not torch's: who knows what it does
    assert outcome_of(torch.zeros, (MOST_BYTES,), {}, large) is None


def test_random_numbers_are_not_used_up() -> None:
    x, = fakes(torch.rand(4))
    before = torch.get_rng_state()
    outcome_of(torch.nn.functional.dropout, (x, 0.123), {}, x)
    assert torch.equal(torch.get_rng_state(), before)


def test_another_size_than_the_examples() -> None:
    mode = new_fake_mode()
    size = new_size(mode.shape_env, "s", 4, 0, None)
    with mode:
        x = torch.empty(2, size)
    assert not raises(torch.Tensor.amax, (x, 1), {}, x[:, 0], {})
    assert raises(torch.Tensor.amax, (x, 1), {}, x[:, 0], {size.node.expr: 0})


def test_solvers_with_pivots_are_not_tried() -> None:
    """LAPACK writes where the pivots say: zeros lead outside of the memory."""
    factors, pivots, right = fakes(torch.eye(4), torch.ones(4, dtype=torch.int32), torch.ones(4, 2))
    for function in (torch.linalg.ldl_solve, torch.linalg.lu_solve, torch.lu_solve):
        assert outcome_of(function, (factors, pivots, right), {}, right) is None
