"""torch.func inside a region: each transform, nested and with gradients through it; functions made outside; what the transformed function reads."""
from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")
WEIGHT = torch.tensor([1.0, -2.0, 0.5])
SCALE = 3.0


def counts(function: Any) -> tuple[int, int, int]:
    """(hits, misses, breaks)."""
    info = aotcompile.info(function)
    regions = info.report().regions
    return sum(r.hits for r in regions), sum(r.misses for r in regions), len(info.breaks)


def with_gradients(function: Callable[..., Any], *arguments: torch.Tensor) -> tuple[list[Any], list[Any]]:
    """The results and, of a weighted sum of them, the gradients."""
    found = function(*arguments)
    results = list(found) if isinstance(found, tuple) else [found]
    differentiable = [result for result in results if result.requires_grad]
    weights = [torch.arange(1.0, result.numel() + 1).reshape(result.shape) for result in differentiable]
    inputs = [argument for argument in arguments if argument.requires_grad]
    gradients = list(torch.autograd.grad(differentiable, inputs, weights, allow_unused=True)) if differentiable else []
    return [result.detach() for result in results], gradients


def cubed(t: torch.Tensor) -> torch.Tensor:
    return (t * WEIGHT).pow(3).sum() * SCALE


MADE_OUTSIDE = vmap(grad(cubed))


def inside_without_grad(x: torch.Tensor) -> Any:
    def half(t: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            kept = t * 2
        return (kept * t).sum()

    with torch.no_grad():
        outside = grad(cubed)(x[0])
    return outside, grad(half)(x[0])


def writes_in_place(x: torch.Tensor) -> Any:
    def written(t: torch.Tensor) -> torch.Tensor:
        t = t.clone()
        t[0] = 5
        t.view(3).mul_(torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3))
        return t

    return vmap(written)(x), grad(lambda t: (written(t) * t).sum())(x[0])


def backward_of_one(x: torch.Tensor) -> Any:
    value, pull = vjp(lambda t: torch.tanh(t) * 2, x)
    return value, pull(torch.ones_like(x))[0], pull(x.detach())[0]


def under_autocast(x: torch.Tensor) -> Any:
    def product(t: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (t @ t.mT).float().sum()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = vmap(lambda t: t.outer(t) @ t.outer(WEIGHT))(x)
    return first.float(), grad(product)(x)


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap": lambda x: vmap(lambda a, b: (a * b).sum() + a)(x, x.sin()),
    "vmap_of_an_operator": lambda x: vmap(torch.dot, in_dims=(0, None))(x, x[0]),
    "vmap_in_chunks": lambda x: vmap(lambda t: t.cumsum(0), chunk_size=3)(x),
    "vmap_out_dims": lambda x: vmap(lambda t: (t.exp(), t.sum()), out_dims=(1, 0))(x),
    "grad": lambda x: grad(lambda t: (t ** 3).sum())(x),
    "grad_and_value": lambda x: grad_and_value(lambda t: (t.sin() * WEIGHT).sum())(x),
    "grad_with_more": lambda x: grad(lambda t: (t.exp().sum(), t * 2), has_aux=True)(x),
    "grad_of_grad": lambda x: grad(lambda t: grad(cubed)(t).sum())(x[0]),
    "jvp": lambda x: jvp(lambda t: t * t.sin(), (x,), (torch.ones_like(x),)),
    "vjp": backward_of_one,
    "jacrev": lambda x: jacrev(lambda a, b: a @ b, argnums=(0, 1))(x, x[0]),
    "jacfwd": lambda x: jacfwd(lambda t: t * t.sum())(x),
    "hessian": lambda x: hessian(cubed)(x[1]),
    "made_outside": lambda x: MADE_OUTSIDE(x) + x,
    "grad_mode": inside_without_grad,
    "in_place": writes_in_place,
    "autocast": under_autocast,
    "attention": lambda x: vmap(lambda t: nn.functional.scaled_dot_product_attention(t, t, t))(x.expand(2, 1, 4, 3)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_transform_is_part_of_the_region(name: str, training: bool) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=training)
    if name == "attention" and training:
        pytest.skip("eager has no second derivative either")
    made = aotcompile.compile(CASES[name], example_inputs=((x,), {}), backend="aot_eager")
    torch.testing.assert_close(with_gradients(made, x), with_gradients(CASES[name], x))
    assert counts(made) == (1, 0, 0)


def test_what_a_transformed_function_reads_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    function = CASES["made_outside"]
    x = torch.randn(4, 3)
    made = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    torch.testing.assert_close(made(x), function(x))
    assert counts(made)[:2] == (0, 1)


def test_size_is_dynamic_through_vmap() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return vmap(grad(cubed))(x) * x.shape[0]

    x = torch.randn(4, 3)
    made = aotcompile.compile(rows, example_inputs=((x,), {}), dynamic_shapes=({0: "B"},))
    for size in (4, 7, 1):
        x = torch.randn(size, 3)
        torch.testing.assert_close(made(x), rows(x))
    assert counts(made) == (3, 0, 0)


def test_break_in_a_transformed_function_is_around_the_call() -> None:
    def shown(t: torch.Tensor) -> torch.Tensor:
        print(end="")
        return t.sin() + 1

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.cos(x) * 2
        z = vmap(shown)(y)
        return torch.tanh(z) * 3

    x = torch.randn(4, 3)
    made = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    torch.testing.assert_close(made(x), function(x))
    assert counts(made)[:2] == (2, 0)


def test_error_of_torchs_own_is_raised() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return vmap(lambda t: t + torch.rand(3))(x * 2)

    x = torch.randn(4, 3)
    made = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    with pytest.raises(RuntimeError, match="randomness"):
        made(x)


class Fivefold(torch.autograd.Function):
    """Its derivative is five times that of the square it computes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x ** 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 10 * ctx.saved_tensors[0]


def doubled_gradient(x: torch.Tensor) -> Any:
    def hooked(t: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 3)
        return (y * t).sum(0)

    return vmap(hooked)(x.detach())


@pytest.mark.parametrize("function", [
    lambda x: vmap(Fivefold.apply)(x) + 1,
    lambda x: grad(lambda t: Fivefold.apply(t).sum())(x),
    lambda x: vmap(lambda t: Fivefold.apply(x) * t)(x.detach()),
    doubled_gradient,
], ids=["vmap", "grad", "captured", "hook"])
def test_what_has_a_derivative_of_its_own_is_left_outside(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    made = aotcompile.compile(function, example_inputs=((x,), {}), backend="aot_eager")
    torch.testing.assert_close(with_gradients(made, x), with_gradients(function, x))


# ---- functional_call ----------------------------------------------------------------------------------------------------------------------


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)
        self.register_buffer("scale", torch.full((2,), 2.0))

    def forward(self, x: torch.Tensor, factor: int = 1) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x)))) * self.scale * factor


def test_functional_call_with_gradients_leaves_the_module_as_it_was() -> None:
    module = Small().double()
    kept = dict(module.named_parameters())

    def function(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        return functional_call(module, parameters, (x,), {"factor": 2}), module(x)

    given = {name: (value.detach() * 2).requires_grad_() for name, value in kept.items()}
    x = torch.randn(5, 3, dtype=torch.float64)
    made = aotcompile.compile(function, example_inputs=((given, x), {}), backend="aot_eager")
    inputs = [*given.values(), *kept.values()]
    results = [run(given, x) for run in (made, function)]
    gradients = [torch.autograd.grad([out.square().sum() for out in result], inputs) for result in results]
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(gradients[0], gradients[1])
    assert counts(made) == (1, 0, 0)
    assert all(value is kept[name] for name, value in module.named_parameters())


def test_gradients_per_sample() -> None:
    module = Small().double()

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (functional_call(module, parameters, (x[None],)) - y).square().mean()

    def function(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> Any:
        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    given = {name: value.detach() for name, value in module.named_parameters()}
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    made = aotcompile.compile(function, example_inputs=((given, x, y), {}), backend="aot_eager")
    torch.testing.assert_close(made(given, x, y), function(given, x, y))
    assert counts(made) == (1, 0, 0)


# ---- what this rests on -------------------------------------------------------------------------------------------------------------------


class Tables(nn.Module):
    """Writes to its tables and attributes, each seen through the other."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        self.seen = self.seen + x
        first = self._buffers["seen"] * 2
        self._parameters["weight"] = x * 3                  # type: ignore[assignment]
        second = self.weight + 1
        self.seen = second
        del self.weight
        return first, second, self._buffers["seen"], "weight" in self._parameters, hasattr(self, "weight")


def test_tables_of_a_module_and_its_attributes_are_one() -> None:
    x = torch.randn(3)
    plain, module = Tables(), Tables()
    made = aotcompile.compile(module, example_inputs=((x,), {}), backend="eager")
    torch.testing.assert_close(made(x), plain(x))
    assert not hasattr(module, "weight")
    torch.testing.assert_close(module.seen, plain.seen)
    assert counts(made) == (1, 0, 0)


def test_tensors_compared_by_identity_are_guarded() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if x is y else x * 3

    def by_key(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * {x: 2, y: 3}[x]

    def by_comprehension(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * len({each for each in (x, y)}) + (y in [x[0], x] if x.ndim > 1 else y in {x})

    def by_set(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        known = {x}
        known.add(y)
        return x * len(known) + len(dict.fromkeys((x, y))) + len(set((x, y)))

    x = torch.ones(3)
    for each in (function, by_key, by_comprehension, by_set):
        made = aotcompile.compile(each, example_inputs=((x, torch.ones(3)), {}), backend="eager")
        torch.testing.assert_close(made(x, torch.ones(3)), each(x, torch.ones(3)))
        torch.testing.assert_close(made(x, x), each(x, x))
        assert counts(made) == (1, 1, 0)


def test_views_compared_by_identity_hit() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if x is y else x * 3

    x, y = torch.randn(3, 4).chunk(2, -1)
    made = aotcompile.compile(function, example_inputs=((x, y), {}), backend="eager")
    torch.testing.assert_close(made(x, y), function(x, y))
    assert counts(made) == (1, 0, 0)
