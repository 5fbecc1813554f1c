// Element types by name: torch's short names in graphs ("f32", "b8") and its attribute names ("float32", "torch.float32").
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace aotcompile {

// False if the name is unknown.
inline bool parse_dtype(std::string name, c10::ScalarType& result) {
  using T = c10::ScalarType;
  static const struct {
    const char *short_name, *torch_name;
    T type;
  } table[] = {
      {"f64", "float64", T::Double},  {"f32", "float32", T::Float},        {"f16", "float16", T::Half},
      {"bf16", "bfloat16", T::BFloat16}, {"i64", "int64", T::Long},        {"i32", "int32", T::Int},
      {"i16", "int16", T::Short},     {"i8", "int8", T::Char},             {"u8", "uint8", T::Byte},
      {"u16", "uint16", T::UInt16},   {"u32", "uint32", T::UInt32},        {"u64", "uint64", T::UInt64},
      {"b8", "bool", T::Bool},        {"c32", "complex32", T::ComplexHalf}, {"c64", "complex64", T::ComplexFloat},
      {"c128", "complex128", T::ComplexDouble}, {"f8e4m3fn", "float8_e4m3fn", T::Float8_e4m3fn}, {"f8e5m2", "float8_e5m2", T::Float8_e5m2},
  };
  if (name.compare(0, 6, "torch.") == 0) name = name.substr(6);
  for (const auto& entry : table) {
    if (name == entry.short_name || name == entry.torch_name) {
      result = entry.type;
      return true;
    }
  }
  return false;
}

}  // namespace aotcompile
