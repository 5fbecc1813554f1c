"""Operators whose eager semantics are easy to miss, each through the whole pipeline and compared with eager."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import aotcompile


def check(function: Callable[..., Any], *inputs: Any, others: tuple[tuple[Any, ...], ...] = (), compiled: bool = True) -> None:
    """Compile for ``inputs``; compare values, strides and changed inputs with eager there and on ``others``. ``compiled``: a region must have run."""
    def copies(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(torch.as_strided(v._base.clone(), v.shape, v.stride(), v.storage_offset()) if isinstance(v, torch.Tensor) and v._base is not None
                     else v.clone(memory_format=torch.preserve_format) if isinstance(v, torch.Tensor) else v for v in values)

    ours = aotcompile.compile(function, example_inputs=(copies(inputs), {}))
    for given in (inputs, *others):
        mine, theirs = copies(given), copies(given)
        torch.manual_seed(3)
        got = ours(*mine)
        torch.manual_seed(3)
        wanted = function(*theirs)
        got, wanted = ((v,) if isinstance(v, torch.Tensor) else v for v in (got, wanted))
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and (a.stride() == b.stride() or not b.numel())
            torch.testing.assert_close(a, b, equal_nan=True)
        for a, b in zip(mine, theirs):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b, equal_nan=True)
    if compiled:
        assert sum(region.hits for region in aotcompile.info(ours).report().regions) > 0


def test_results_without_elements() -> None:
    """Kernels whose loops have no iteration read nothing: memory without elements has no address."""
    def f(x: torch.Tensor, empty: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.gather(x, 0, index) + 1, empty.repeat(2, 3), (empty + 1).reshape(0, 2) * 2, empty.repeat(1, 0), rows.sum(1),
                rows.exp().sum(1) + 1, torch.tile(x, (0,)), rows.prod(1), torch.cat([rows, rows], 1).mean(1))

    check(f, torch.arange(5.0), torch.empty(0), torch.empty(0, dtype=torch.int64), torch.empty(4, 0))


def test_sizes_that_are_data() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nonzero(x), torch.masked_select(x, x > 2), x[x > 1] * 2, torch.nonzero(x) + 1

    x = torch.arange(12.0).reshape(3, 4) % 5
    check(f, x, others=((torch.zeros(3, 4),), (torch.ones(3, 4) * 3,)))


def test_operators_of_torch_ops_run_once() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.ops.aten.add_(x, 1)
        torch.ops.aten.mul_.Tensor(y, x)
        return x + y, torch.ops.aten.bernoulli(y * 0 + 0.5), torch.rand(3)

    check(f, torch.arange(4.0), torch.arange(4.0) + 1)


def test_as_strided_counts_from_the_storage() -> None:
    def absolute(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (2, 2), (1, 2), 1)

    def relative(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (2, 2), (1, 2))

    whole = torch.arange(20.0)
    views = tuple((whole[offset:offset + 8],) for offset in (5, 0, 3))
    check(absolute, *views[0], others=views[1:], compiled=False)
    check(absolute, *views[1], others=(views[0], views[2]))

    def written(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.as_strided_scatter(x, y, (2, 2), (1, 2), 1), torch.as_strided_copy(x[2:], (2, 2), (1, 2), 3) * 2,
                torch.as_strided(x + 1, (2, 2), (1, 2), 3))

    check(written, *views[1], torch.ones(2, 2), others=((*views[0], torch.ones(2, 2)),))
    check(lambda x: torch.as_strided(x, (2, 2), (9, 1), 0) + 1, *views[1], compiled=False)
    check(relative, *views[0], others=views[1:])


def test_like_operators_keep_the_strides_of_dimensions_of_size_one() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ones_like(x), torch.full_like(x, 3), torch.zeros_like(y), torch.empty_like(y).copy_(y), torch.ones_like(y, dtype=torch.int64)

    check(f, torch.arange(7.0)[None].t().clone(memory_format=torch.preserve_format), torch.empty_strided((2, 1, 3, 1), (3, 6, 1, 99)).zero_())


def test_complex_numbers_that_are_not_finite_as_arguments() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.logaddexp(x, y), torch.full_like(x, complex(float("inf"), 0.0))

    check(f, torch.randn(3, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64))


def test_capture_leaves_no_function_mode_behind() -> None:
    from torch.overrides import _get_current_function_mode_stack

    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.triplet_margin_with_distance_loss(a, b, c, distance_function=torch.nn.PairwiseDistance())

    check(f, torch.rand(5, 4), torch.rand(5, 4), torch.rand(5, 4), compiled=False)
    assert not _get_current_function_mode_stack()


if __name__ == "__main__":
    pytest.main([__file__])


@pytest.mark.parametrize("training", [False, True])
def test_operators_that_check_values_raise_as_eager(training: bool) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(x + 1, y) + torch.linalg.inv(x + 1).sum() * torch.linalg.cholesky(y @ y.T + torch.eye(2)).sum()

    good, bad = torch.tensor([[1.0, 2.0], [3.0, 7.0]]), torch.ones(2, 2)
    for x in (good, bad):
        x.requires_grad_(training)
    ours = aotcompile.compile(f, example_inputs=((good, torch.eye(2)), {}), training=training)
    with torch.set_grad_enabled(training):
        torch.testing.assert_close(ours(good, torch.eye(2)), f(good, torch.eye(2)))
        with pytest.raises(torch.linalg.LinAlgError) as wanted:
            f(bad, torch.eye(2))
        with pytest.raises(torch.linalg.LinAlgError) as found:
            ours(bad, torch.eye(2))
    assert str(found.value) == str(wanted.value)
    [region] = aotcompile.info(ours).report().regions
    assert region.hits == 1 and not region.eager
    if training:
        wanted_gradient, = torch.autograd.grad(f(good, torch.eye(2)).sum(), good)
        torch.testing.assert_close(torch.autograd.grad(ours(good, torch.eye(2)).sum(), good)[0], wanted_gradient)


def test_views_of_complex_memory_leave_a_region() -> None:
    """Lazy conjugation and the real and imaginary halves: the same memory, seen in another way."""
    def f(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = z * 2
        return (torch.fft.ihfft(x), z.conj(), y, y.conj(), z.imag, z.real, z.conj().imag, y.mT.conj().real, torch.view_as_real(z),
                torch.view_as_complex(x.view(3, 2)), z.sum().imag)

    x, z = torch.arange(6.0), torch.complex(torch.arange(6.0).view(2, 3), torch.ones(2, 3))
    ours = aotcompile.compile(f, example_inputs=((x, z), {}))
    for _ in range(2):
        got, wanted = ours(x, z), f(x, z)
        for a, b in zip(got, wanted, strict=True):
            assert (a.dtype, a.shape, a.stride(), a.is_conj(), a.is_neg()) == (b.dtype, b.shape, b.stride(), b.is_conj(), b.is_neg())
            torch.testing.assert_close(a, b)

        def owners(results: tuple[torch.Tensor, ...]) -> list[tuple[bool, bool, int]]:
            places = [x.untyped_storage().data_ptr(), z.untyped_storage().data_ptr(), results[2].untyped_storage().data_ptr()]
            return [([r.untyped_storage().data_ptr() == place for place in places], r.storage_offset()) for r in results]
        assert owners(got) == owners(wanted)
    assert [region.hits for region in aotcompile.info(ours).report().regions] == [2]


def test_a_view_that_starts_at_a_tensors_value() -> None:
    def f(x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return torch.narrow(x, 1, start, 2)

    check(f, torch.arange(20.0).reshape(4, 5), torch.tensor(2), others=((torch.arange(20.0).reshape(4, 5), torch.tensor(1)),), compiled=False)


def test_powers_by_way_of_torchs_wrapper() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.Tensor.__pow__(x, 2) + torch.Tensor.__rsub__(x, 1) + torch.signal.windows.gaussian(6, std=1.5)

    check(f, torch.arange(6.0))


def test_an_argument_that_no_graph_takes_is_reported() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    for given, reason in ((torch.ones(3, dtype=torch.complex64).conj(), "conjugated"), (torch.ones(3, 2).to_sparse(), "torch.sparse_coo")):
        ours = aotcompile.compile(f, example_inputs=((given,), {}))
        torch.testing.assert_close(ours(given).to_dense(), f(given).to_dense())
        with open(f"{aotcompile.info(ours).out}/manifest.json", encoding="utf-8") as file:
            assert reason in file.read()


def test_copies_of_views_and_take() -> None:
    def f(x: torch.Tensor, index: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.permute_copy(x, (1, 0)), torch.view_copy(x, (6,)) + 1, torch.narrow_copy(x, 1, 1, 2), *torch.unbind_copy(x, 1),
                *torch.split_with_sizes_copy(x, [1, 2], 1), torch.as_strided_copy(x, (2, 2), (1, 2)), torch.take(x, index), torch.take(x, number),
                torch.take(number * 2, number - 1), torch.view_copy(x, torch.int32))

    check(f, torch.arange(6.0).reshape(2, 3), torch.tensor([[5, -1], [0, 3]]), torch.tensor(1))


def test_an_operator_that_reads_elements_itself_is_no_error_of_the_program() -> None:
    def f(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        try:
            parts = torch.tensor_split(x * 2, places)
        except RuntimeError:
            return x
        return parts[1] + 1

    check(f, torch.arange(6.0), torch.tensor([2, 4]))


def test_an_object_of_options_is_looked_into() -> None:
    """What a function of torch reads of a dataclass is guarded."""
    pytest.importorskip("torch.nn.modules.linear_cross_entropy")
    options = torch.nn.LinearCrossEntropyOptions

    def f(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, given: Any) -> torch.Tensor:
        return torch.nn.functional.linear_cross_entropy(x, weight, target, options=given)

    x, weight, target = torch.arange(24.0).reshape(8, 3) / 9, torch.arange(12.0).reshape(4, 3) / 7, torch.arange(8) % 4
    others = tuple((x, weight, target, options(batch_chunk_size=size, allow_retain_graph=True)) for size in (2, 4))
    check(f, x, weight, target, options(batch_chunk_size=2, allow_retain_graph=True), others=others)


def test_images_of_bytes_are_resized_as_eager_does() -> None:
    """Eager computes with whole numbers there."""
    def f(image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        resize = torch.nn.functional.interpolate
        return (resize(image, (9, 5), mode="bilinear"), resize(image, scale_factor=1.7, mode="bicubic"), resize(image, (4, 4), mode="nearest"),
                resize(image, (4, 4), mode="bilinear", antialias=True), resize(image / 3, (9, 5), mode="bilinear") + 1,
                resize(image, scale_factor=(0.5, 2.0), mode="bilinear", align_corners=True) + 1)

    image = torch.randint(0, 256, (2, 3, 7, 11), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    check(f, image)


@pytest.mark.parametrize("function", [torch.linalg.eig, torch.linalg.eigh, torch.linalg.svd])
def test_derivatives_that_check_values_raise_as_eager(function: Callable[..., Any]) -> None:
    """A loss that depends on the phase of a vector has no derivative."""
    def f(x: torch.Tensor) -> torch.Tensor:
        first, second = function(x + x.mH)[:2]
        vectors = first if function is torch.linalg.svd else second
        return vectors.real.sum() + vectors.imag.sum()

    x = torch.complex(torch.tensor([[2.0, 1.0], [0.5, 3.0]]), torch.tensor([[0.0, 1.0], [0.7, 0.2]])).requires_grad_()
    ours = aotcompile.compile(f, example_inputs=((x,), {}), training=True)
    outcomes = []
    for called in (f, ours):
        with pytest.raises(RuntimeError) as found:
            torch.autograd.grad(called(x), x)
        outcomes.append(str(found.value))
    assert outcomes[0] == outcomes[1] and "phi" in outcomes[0]


def test_interpolation_rounds_as_eager() -> None:
    """Infinities do not spoil their neighbours, nearest-exact takes the same ones, also where the sizes vary."""
    def f(x: torch.Tensor, line: torch.Tensor) -> tuple[torch.Tensor, ...]:
        resize = torch.nn.functional.interpolate
        return (resize(x, scale_factor=2, mode="bilinear"), resize(x * 1, scale_factor=1.5, mode="bicubic") + 1,
                *(resize(line, size, mode="nearest-exact") for size in (41, 47, 55, 83)), resize(line, scale_factor=2.5, mode="linear"))

    def images(*sizes: int) -> torch.Tensor:
        x = torch.arange(float(torch.Size(sizes).numel())).reshape(sizes) / 7
        x[0, 0, 1] = float("-inf")
        return x

    line = torch.tensor([[[1.0, 2.0]]])
    check(f, images(2, 2, 4, 5), line)
    ours = aotcompile.compile(f, example_inputs=((images(2, 2, 4, 5), line), {}), dynamic=True)
    for x in (images(2, 2, 4, 5), images(3, 2, 6, 3)):
        for got, wanted in zip(ours(x, line), f(x, line), strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    assert [region.hits for region in aotcompile.info(ours).report().regions] == [2]


@pytest.mark.parametrize("function", [torch.nn.functional.multilabel_margin_loss, torch.nn.functional.multi_margin_loss])
def test_margin_losses_leave_out_what_eager_does(function: Callable[..., Any]) -> None:
    """Labels after the first -1, and NaN."""
    x = torch.tensor([[0.1, 0.9, 0.3, 0.4], [0.2, 0.5, float("nan"), 0.1]])
    labels = torch.tensor([[0, 2, -1, 1]] * 2) if function is torch.nn.functional.multilabel_margin_loss else torch.tensor([1, 0])
    check(lambda x, labels: function(x * 2, labels), x, labels)
    x.requires_grad_()
    ours = aotcompile.compile(lambda x, labels: function(x * 2, labels), example_inputs=((x, labels), {}), training=True)
    got, wanted = (torch.autograd.grad(called(x, labels), x)[0] for called in (ours, lambda x, labels: function(x * 2, labels)))
    torch.testing.assert_close(got, wanted, equal_nan=True)
    assert [region.hits for region in aotcompile.info(ours).report().regions] == [1]


def test_writes_of_slices_at_positions() -> None:
    def f(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x * 1
        z.index_fill_(0, i, 3.0)
        return (z, x.index_fill(1, i, y[0, 0]), x.index_fill(-1, i[:1], float("nan")), x.index_add(0, i.abs(), y, alpha=2) + 1,
                x.index_copy(0, i[1:].abs(), y[1:]), x.select_scatter(y[0].double(), 0, -1), torch.nn.functional.one_hot(i.abs(), 4) + 1)

    x, y = torch.arange(20.0).reshape(4, 5), torch.arange(15.0).reshape(3, 5)
    check(f, x, torch.tensor([-1, 0, 0]), y, others=((x, torch.tensor([-3, 2, 1]), y),))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("name", ["std", "std_mean"])
def test_deviation_over_the_whole_range(scale: float, name: str) -> None:
    """Eager accumulates in doubles and takes the root before it rounds: the squares alone are beyond f32."""
    torch.manual_seed(0)
    x = torch.randn(8, 100) * scale
    for dim in (0, -1):
        compiled = aotcompile.compile(lambda x, dim=dim: getattr(torch, name)(x, dim), example_inputs=((x,), {}))
        torch.testing.assert_close(compiled(x), getattr(torch, name)(x, dim), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("name", ["var", "std", "var_mean"])
def test_variance_far_from_zero(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 1000) + 1e5
    compiled = aotcompile.compile(lambda x: getattr(torch, name)(x, -1), example_inputs=((x,), {}))
    found, exact = compiled(x), getattr(torch, name)(x.double(), -1)
    pairs = zip(found, exact) if isinstance(found, tuple) else [(found, exact)]
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=0.0)


def test_relu_keeps_the_sign_of_zero() -> None:
    x = torch.tensor([-0.0, 0.0, -1.0, float("nan"), 2.0] * 9)
    compiled = aotcompile.compile(lambda x: x.relu(), example_inputs=((x,), {}))
    found, expected = compiled(x), x.relu()
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert torch.equal(torch.signbit(found), torch.signbit(expected))


def test_signs_of_zeros() -> None:
    """Of 0 and -0, a clamp by a number keeps what it is given, and an extreme of two tensors the second one (fmax: the first)."""
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (1 / torch.relu(x), 1 / x.clamp(min=0), 1 / x.clamp(max=0), 1 / x.clamp(0, 1), 1 / torch.nn.functional.hardtanh(x, 0, 1),
                1 / torch.fmax(x, y), 1 / torch.fmin(x, y), 1 / torch.maximum(x, y), 1 / x.clamp(min=y))

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        zeros = torch.tensor([0.0, -0.0] * 16, dtype=dtype)
        check(f, zeros, -zeros)


def test_views_with_elements_of_another_size_leave_a_region() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        halves = x.view(torch.int16)
        halves[0] += 1
        return x.view(torch.int64), halves, x.view(torch.uint8)[:, ::2], y, y.view(torch.float64), x.t()

    def memory(x: torch.Tensor, results: tuple[torch.Tensor, ...]) -> list[Any]:
        places = [x.untyped_storage().data_ptr(), results[3].untyped_storage().data_ptr()]
        return [(places.index(r.untyped_storage().data_ptr()), r.storage_offset()) for r in results]

    check(f, torch.arange(12.0).view(3, 4), others=((torch.arange(20.0)[2:14].view(3, 4),),))
    x, z = torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4)
    ours = aotcompile.compile(f, example_inputs=((torch.ones(3, 4),), {}))
    assert memory(x, ours(x)) == memory(z, f(z))
    with pytest.raises(RuntimeError, match="must be divisible by 2"):
        ours(torch.arange(20.0)[1:13].view(3, 4))


def test_writes_to_elements_that_share_memory_are_left_to_eager() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x + 1
        torch.as_strided(x, (3, 3), (1, 1)).mul_(2)
        y.fill_(3)
        return x * 2 + z.sum(), y + 1, ~y.expand(2, 4, 3).bool()

    check(f, torch.arange(6.0), torch.ones(1, 1).expand(4, 3))
    x = torch.arange(6.0)
    ours = aotcompile.compile(lambda x: x.unfold(0, 3, 1) + 1, example_inputs=((x,), {}))
    torch.testing.assert_close(ours(x), x.unfold(0, 3, 1) + 1)
    assert not aotcompile.info(ours).breaks


def test_strides_of_results_without_elements() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.transpose(0, 2) * 2, x.permute(2, 0, 1).relu(), torch.cat([x, x], 1), x.sum(1), torch.zeros_like(x.permute(2, 1, 0))

    x = torch.empty(2, 0, 3)
    ours = aotcompile.compile(f, example_inputs=((x,), {}))
    assert [result.stride() for result in ours(x)] == [result.stride() for result in f(x)]
    assert [region.hits for region in aotcompile.info(ours).report().regions] == [1]
