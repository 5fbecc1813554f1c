"""Example tensors for signatures, and torch.export's dynamic_shapes in normal form."""
from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.export import Dim

from aotcompile.base.diagnostic import UsageError
from aotcompile.frontend.entries import Dimension, example_inputs_of, make_entry, normalize_dynamic_shapes


def normal(spec: Any, arguments: dict[str, Any], dims: Any = None) -> dict[str, dict[int, str]]:
    return {str(path): {i: str(d) for i, d in found.items()} for path, found in normalize_dynamic_shapes(spec, arguments, dims).items()}


X, W = torch.zeros(8, 6), torch.zeros(6, 5)


@pytest.mark.parametrize("spec", [
    ({0: "B"}, None), ({0: "B"},), [{0: "B"}, None], {"x": {0: "B"}}, {"x": {0: "B"}, "w": None}, {"x": {"0": "B"}}, {"x": ("B", None)}, {"x": ["B", 6]},
    {"x": {0: Dim("B")}}, {"x": {-2: "B"}}, {"x": {0: "B", 1: Dim.STATIC}}, {"x": {0: Dimension("B")}},
])
def test_forms_that_say_the_same(spec: Any) -> None:
    assert normal(spec, {"x": X, "w": W}) == {"x": {0: "B"}}


def test_ranges_and_own_letters() -> None:
    found = normal({"x": {0: Dim("B", min=2, max=64), 1: Dim.AUTO}, "w": {0: "F"}}, {"x": X, "w": W}, {"F": (1, 16)})
    assert found == {"x": {0: "2 <= B <= 64", 1: "x_1"}, "w": {0: "1 <= F <= 16"}}


def test_containers_nest_as_the_inputs_do() -> None:
    arguments = {"states": [X, (X, W)], "extra": {"w": W, "n": 3}}
    found = normal({"states": [{0: "B"}, ({0: "B"}, None)], "extra": {"w": {1: "C"}, "n": None}}, arguments)
    assert found == {"states[0]": {0: "B"}, "states[1][0]": {0: "B"}, "extra['w']": {1: "C"}}


def test_derived_dimensions() -> None:
    batch = Dim("B", min=1, max=64)
    assert normal({"x": {0: batch}, "y": {0: 2 * batch}}, {"x": X, "y": torch.zeros(16)}) == {"x": {0: "1 <= B <= 64"}, "y": {0: "2 <= 2*B <= 128"}}


@pytest.mark.parametrize("spec, words", [
    ({"z": {0: "B"}}, "it names 'z', which is no argument. The arguments are x, w."),
    (({0: "B"}, None, None), "3 items for 2 arguments"),
    ({"x": {2: "B"}}, "x has 2 dimensions, 2 is none of them"),
    ({"x": ("B",)}, "x has 2 dimensions, its specification 1"),
    ({"x": {0: 9}}, "x.shape[0] is 8, 9 was said"),
    ({"x": {0: "B", 1: "B"}}, "B is 8 at x.shape[0] and 6 at x.shape[1]"),
    ({"x": {0: Dim("B", max=4)}}, "x.shape[0] is 8 in the example, outside of B <= 4"),
    ({"x": {0: "B"}, "w": {0: "2*B"}}, "w.shape[0] is 6 in the example, 2*B is 16"),
    ({"x": {0: "not a name"}}, "no letter and no expression"),
    ({"x": {0: "8"}}, "Write the number without quotes"),
    ({"x": "B"}, "the specification of x is 'B'"),
    ("B", "it is a str"),
    ({"x": {0: 1.5}}, "the size of x.shape[0] is 1.5"),
])
def test_what_does_not_fit_is_named(spec: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        normalize_dynamic_shapes(spec, {"x": X, "w": W})
    assert str(caught.value).startswith("AOT112 ") and words in str(caught.value), str(caught.value)


def test_no_tensor_no_dynamic_size() -> None:
    with pytest.raises(UsageError, match="n is a str, no tensor"):
        normalize_dynamic_shapes({"n": {0: "B"}}, {"n": "text"})
    with pytest.raises(UsageError, match="the size of n is {0: 'B'}"):
        normalize_dynamic_shapes({"n": {0: "B"}}, {"n": 3})
    with pytest.raises(UsageError, match="scale is a float"):
        normalize_dynamic_shapes({"scale": Dim("B", max=8)}, {"scale": 0.5})


def test_a_number_may_be_dynamic() -> None:
    found = normalize_dynamic_shapes(({0: "B"}, Dim.DYNAMIC, Dim.AUTO, Dim.STATIC, (None, "T")),
                                     {"x": torch.zeros(2), "n": 3, "scale": 0.5, "k": 4, "pair": (1, 2)})
    assert sorted(map(str, found)) == ["n", "pair[1]", "scale", "x"] and all(list(sizes) == [0 if str(path) == "x" else -1]
                                                                           for path, sizes in found.items())


@pytest.mark.parametrize("dims", [{"B": (5, 2)}, {"B": (-1, 2)}, {"B": "many"}, {"B": {"minimum": 1}}, {"B": (True, 2)}, {"a b": (1, 2)}])
def test_wrong_ranges(dims: Any) -> None:
    with pytest.raises(UsageError, match="AOT111"):
        example_inputs_of(("f32[B]",), dims)


def test_a_range_for_no_letter() -> None:
    with pytest.raises(UsageError, match="AOT111 dims names C, which no input has. The inputs have B."):
        example_inputs_of(("f32[B]",), {"C": (1, 2)})


def test_example_inputs_by_position_and_by_name() -> None:
    args, kwargs, shapes = example_inputs_of(("f32[B, 3]", "i64[B]", 2.5, "mean"), {"B": (1, 64)})
    assert kwargs == {} and args[2:] == (2.5, "mean") and args[0].shape == (8, 3) and args[1].dtype == torch.int64 and args[1].shape == (8,)
    assert shapes == (({0: Dimension("B", 1, 64)}, {0: Dimension("B", 1, 64)}, None, None), {})
    args, kwargs, shapes = example_inputs_of({"x": ["f32[B]", ("b8[4]",)], "n": None})
    assert args == () and kwargs["x"][1][0].dtype == torch.bool and kwargs["n"] is None
    assert shapes == ((), {"x": [{0: Dimension("B")}, (None,)], "n": None})


def test_example_values_are_seeded_and_sizes_distinct() -> None:
    first, second = (example_inputs_of(("f32[B, 8, C]", "i64[C]"))[0] for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert len({first[0].shape[0], 8, first[0].shape[2]}) == 3                 # no equality by accident
    assert set(first[1].tolist()) <= {0, 1}


@pytest.mark.parametrize("limits, size", [((1, 1), 1), ((0, 0), 0), ((3, 5), 5), ((100, None), 100), ((2, 9), 8)])
def test_example_sizes_keep_the_range(limits: tuple[int, int | None], size: int) -> None:
    assert example_inputs_of(("f32[B]",), {"B": limits})[0][0].shape == (size,)


@pytest.mark.parametrize("text", ["f32[4, 6][1, 4]", "f32[4, 6][6, 1]", "bf16[3, 4][0, 1]", "i32[2, 3, 4][24, 8, 2]", "f64[0, 3][9, 1]", "c64[2]", "f8e4m3fn[4]",
                                  "f32[]", "u8[5]", "f16[B, T][1, B]"])
def test_example_layout(text: str) -> None:
    from aotcompile.ir.signature import parse_signature
    signature = parse_signature(text)
    (tensor,), _, _ = example_inputs_of((text,))
    letters = dict(zip(signature.letters, tensor.shape)) if signature.letters else {}
    shape, strides = signature.concrete(letters)
    assert tensor.shape == shape and tensor.dtype == getattr(torch, signature.dtype.torch_name)
    assert strides is None or tensor.stride() == strides
    assert strides is not None or tensor.is_contiguous()


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="AOT114 .*cuda"):
        example_inputs_of(("f32[4]cuda",))


def test_entry_binds_arguments() -> None:
    def f(x: torch.Tensor, *rest: torch.Tensor, scale: float = 1.0, **other: Any) -> None: ...

    entry = make_entry(f, (X, W, X), {"scale": 2.0, "k": 1}, dynamic_shapes={"x": {0: "B"}, "rest": (None, {0: "B"})})
    assert list(entry.arguments) == ["x", "rest", "scale", "other"]
    assert {str(p) for p in entry.dynamic_shapes} == {"x", "rest[1]"}
    with pytest.raises(UsageError, match="AOT113 .*missing a required argument: 'x'"):
        make_entry(f, ())


def test_entry_of_a_module_and_a_method() -> None:
    module = torch.nn.Linear(6, 5)
    entry = make_entry(module, (X,), dynamic_shapes=({0: "B"},))
    assert entry.name == "torch.nn.modules.linear:Linear.forward" and list(entry.arguments) == ["input"] and entry.function == module.forward
    assert make_entry(module.forward, (X,)).name == entry.name


@dataclasses.dataclass
class Batch:
    tokens: Any
    masks: Any = None


@pytest.mark.parametrize("shapes", [({"tokens": {0: "B"}, "masks": [None, {0: "B"}]},), ([{0: "B"}, (None, {0: "B"})],),
                                    (Batch({0: "B"}, [None, {0: "B"}]),)], ids=["names", "order", "object"])
def test_dataclasses(shapes: Any) -> None:
    def f(batch: Batch) -> None: ...

    entry = make_entry(f, (Batch(X, [W, X]),), dynamic_shapes=shapes)
    assert {str(path): [d.name for d in sizes.values()] for path, sizes in entry.dynamic_shapes.items()} == {
        "batch.tokens": ["B"], "batch.masks[1]": ["B"]}


@pytest.mark.parametrize(("shapes", "message"), [(({"words": None},), "no field 'words'"), (("B",), "its specification is 'B'"),
                                                 (([None, None, None],), "its specification is")])
def test_dataclasses_misspecified(shapes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"AOT112 .*{message}"):
        make_entry(lambda batch: None, (Batch(X),), dynamic_shapes=shapes)
