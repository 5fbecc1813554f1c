from __future__ import annotations

import keyword
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotcompile.base import names


@pytest.mark.parametrize("qualname, index, alone, stub", [
    ("Net.forward", 0, True, "_r0"),
    ("Net.forward", 1, False, "_Net_forward_r1"),
    ("make.<locals>.inner", 0, False, "_make_inner_r0"),
    ("__call", 2, False, "_call_r2"),
    ("Größe.naïve", 0, False, "_Gruf6udfe_nauefve_r0"),
])
def test_stub_names(qualname: str, index: int, alone: bool, stub: str) -> None:
    assert names.stub_name(qualname, index, alone=alone) == stub


def test_region_names_read_back() -> None:
    assert names.split_region_name(names.region_name("A.<locals>.f", 12)) == ("A.<locals>.f", 12)
    for wrong in ("forward", "forward:0", "forward:r", "forward:rx"):
        with pytest.raises(ValueError, match="not a region"):
            names.split_region_name(wrong)


def test_variant_folders() -> None:
    assert names.variant_folder("model", "Net.forward", 0, 0) == "_aot/model/Net.forward/r0/v0"
    assert names.variant_folder("", "f", 1, 2) == "_aot/__init__/f/r1/v2"
    assert names.variant_folder("sub.model", "f", 0, 0) == "_aot/sub/model/f/r0/v0"


@given(st.text(min_size=0, max_size=300), st.text(min_size=0, max_size=300))
@settings(max_examples=200, deadline=None)
def test_file_names_are_safe_and_tell_texts_apart(one: str, other: str) -> None:
    name = names.file_name(one)
    assert name.isascii() and all(c.isalnum() or c in "._-" for c in name)
    assert 0 < len(name) < 200 and name not in (".", "..") and not name.endswith(".")
    assert one == other or name != names.file_name(other)


@pytest.mark.parametrize("text", ["", ".", "..", "con", "NUL.txt", "a/b", "a\\b", "make.<locals>.f", "<lambda>", "größe", "x" * 400, "a.", "日本"])
def test_file_names_of_awkward_texts(text: str) -> None:
    name = names.file_name(text)
    assert name != text and name.rpartition("-")[2].isalnum() and len(name.rpartition("-")[2]) == 8


@given(st.text(min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_identifiers_are_identifiers(text: str) -> None:
    name = names.identifier(text)
    assert name.isascii() and (name.isidentifier() or keyword.iskeyword(name))


@pytest.mark.parametrize("name, class_name, expected", [
    ("__x", "Net", "_Net__x"), ("__x", "_Net", "_Net__x"), ("__x", "__", "__x"), ("__x__", "Net", "__x__"), ("_x", "Net", "_x"), ("__x", None, "__x"),
    ("_Net__x", "Net", "_Net__x"),
])
def test_mangling_is_pythons(name: str, class_name: str | None, expected: str) -> None:
    assert names.mangled(name, class_name) == expected
    if class_name:
        scope: dict[str, type] = {}
        exec(f"class {class_name}:\n    {name} = 1", scope)
        assert expected in vars(scope[class_name])


def test_kernel_names() -> None:
    operations = ["aten.tanh.default", "aten.add.Tensor", "aten.sin.default", "aten.mul.Tensor", "aten.cos.default", "aten.mul.Scalar"]
    assert names.kernel_name("triton", "pointwise", operations, 0) == "triton_poi_fused_add_cos_mul_sin_tanh_0"
    assert names.kernel_name("cpp", "reduction", [], 3) == "cpp_red_3"
    many = names.kernel_name("cpp", "pointwise", [f"aten.operation{i:02}.default" for i in range(20)], 1)
    assert many == "cpp_poi_fused_operation00_operation01_operation02_operation03_operation04_and_15_more_1" and many.isidentifier()


def test_names_do_not_depend_on_the_hash_seed() -> None:
    code = ("from aotcompile.base import names; "
            "print(names.kernel_name('cpp', 'pointwise', {'aten.add.Tensor', 'aten.mul.Tensor', 'aten.sin.default'}, 0), names.file_name('größe'))")
    texts = {subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}, capture_output=True,
                            text=True, check=True).stdout for seed in ("0", "1", "2")}
    assert len(texts) == 1


def test_unique() -> None:
    assert names.unique("a", {"b"}) == "a"
    assert names.unique("a", {"a", "a_2"}) == "a_3"


@pytest.mark.parametrize(("qualname", "expected"), [
    ("f", ""), ("Net.forward", "Net"), ("make.<locals>.f", ""), ("make.<locals>.Net.forward.<locals>.inner", "Net"), ("A.B.f", "B"),
])
def test_enclosing_class(qualname: str, expected: str) -> None:
    assert names.enclosing_class(qualname) == expected
