"""Element types. The short names are the ones torch prints in its graphs (`f32`, `bf16`, `i64`, `b8`)."""
from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True)
class _Facts:
    torch: str
    kind: Kind
    size: int
    c: str


class DType(enum.Enum):
    """An element type; ``value`` is the short name. Facts: `torch_name`, `kind`, `itemsize` (bytes), `c_name` (storage type in C++)."""

    f64 = "f64"
    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    i64 = "i64"
    i32 = "i32"
    i16 = "i16"
    i8 = "i8"
    u8 = "u8"
    u16 = "u16"
    u32 = "u32"
    u64 = "u64"
    b8 = "b8"
    c32 = "c32"
    c64 = "c64"
    c128 = "c128"
    f8e4m3fn = "f8e4m3fn"
    f8e5m2 = "f8e5m2"

    @property
    def torch_name(self) -> str:
        return _FACTS[self].torch

    @property
    def kind(self) -> Kind:
        return _FACTS[self].kind

    @property
    def itemsize(self) -> int:
        return _FACTS[self].size

    @property
    def c_name(self) -> str:
        return _FACTS[self].c

    @property
    def is_floating(self) -> bool:
        return self.kind == "float"

    @property
    def is_integral(self) -> bool:
        return self.kind in ("int", "uint")


_FACTS = {
    DType.f64: _Facts("float64", "float", 8, "double"),
    DType.f32: _Facts("float32", "float", 4, "float"),
    DType.f16: _Facts("float16", "float", 2, "_Float16"),
    DType.bf16: _Facts("bfloat16", "float", 2, "bfloat16"),
    DType.i64: _Facts("int64", "int", 8, "int64_t"),
    DType.i32: _Facts("int32", "int", 4, "int32_t"),
    DType.i16: _Facts("int16", "int", 2, "int16_t"),
    DType.i8: _Facts("int8", "int", 1, "int8_t"),
    DType.u8: _Facts("uint8", "uint", 1, "uint8_t"),
    DType.u16: _Facts("uint16", "uint", 2, "uint16_t"),
    DType.u32: _Facts("uint32", "uint", 4, "uint32_t"),
    DType.u64: _Facts("uint64", "uint", 8, "uint64_t"),
    DType.b8: _Facts("bool", "bool", 1, "bool"),
    DType.c32: _Facts("complex32", "complex", 4, ""),
    DType.c64: _Facts("complex64", "complex", 8, ""),
    DType.c128: _Facts("complex128", "complex", 16, ""),
    DType.f8e4m3fn: _Facts("float8_e4m3fn", "float", 1, ""),
    DType.f8e5m2: _Facts("float8_e5m2", "float", 1, ""),
}

BY_TORCH_NAME = {dtype.torch_name: dtype for dtype in DType}
