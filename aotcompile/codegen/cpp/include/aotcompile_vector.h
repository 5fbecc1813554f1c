// Vectors of N elements for every CPU level: GCC/Clang vector extensions where N elements fit a register, two halves where they do not.
//
// Value types in kernels: f32, f16 and bf16 -> Vector<float, N>; f64 -> Vector<double, N>; integers -> Vector<intX_t, N>; b8 -> Mask<N>, whose
// elements are 0 or -1. `lanes` says which elements exist: AllLanes, or FirstLanes{count} in the tail of a loop, where memory past
// the first `count` elements is never touched.
#pragma once
#include <stdint.h>
#include "aotcompile_instructions.h"

namespace aotcompile {

// Elements of a vector that fills one register when its widest elements have `bytes` bytes.
constexpr int lanes_of(int bytes) { return VECTOR_BYTES / bytes; }

struct bfloat16 { uint16_t bits; };
struct float16 { uint16_t bits; };

template <typename T, int N, bool Split = (N * (int)sizeof(T) > VECTOR_BYTES)> struct Vector;
template <typename T, int N> struct Vector<T, N, false> {
  typedef T Raw __attribute__((vector_size(N * sizeof(T))));
  Raw raw;
};
template <typename T, int N> struct Vector<T, N, true> {
  Vector<T, N / 2> low, high;
};
template <int N> struct Mask { Vector<int32_t, N> lanes; };

template <typename T, int N> constexpr bool is_split = N * (int)sizeof(T) > VECTOR_BYTES;
template <int Bytes> struct IntegerOf;
template <> struct IntegerOf<1> { typedef int8_t Type; };
template <> struct IntegerOf<2> { typedef int16_t Type; };
template <> struct IntegerOf<4> { typedef int32_t Type; };
template <> struct IntegerOf<8> { typedef int64_t Type; };
template <typename T> using Integer = typename IntegerOf<sizeof(T)>::Type;
template <typename T> struct UnsignedOf;
template <> struct UnsignedOf<int8_t> { typedef uint8_t Type; };
template <> struct UnsignedOf<int16_t> { typedef uint16_t Type; };
template <> struct UnsignedOf<int32_t> { typedef uint32_t Type; };
template <> struct UnsignedOf<int64_t> { typedef uint64_t Type; };
template <typename T> using Unsigned = typename UnsignedOf<Integer<T>>::Type;
template <typename T> constexpr bool is_float = false;
template <> constexpr bool is_float<float> = true;
template <> constexpr bool is_float<double> = true;
template <typename T> constexpr bool is_signed = T(-1) < T(0);

struct AllLanes {};
struct FirstLanes { int count; };
template <int N> constexpr int count_of(AllLanes) { return N; }
template <int N> AOT_INLINE int count_of(FirstLanes lanes) { return lanes.count; }

// ---- elements, halves, whole vectors ---------------------------------------------------------------------------------------------------

template <typename T, int N> AOT_INLINE Vector<T, N> splat_value(T value) {
  if constexpr (is_split<T, N>) {
    Vector<T, N / 2> half = splat_value<T, N / 2>(value);
    return {half, half};
  } else {
    typename Vector<T, N>::Raw raw = {};
    return {raw + value};
  }
}
// `raw + value` would turn -0.0 into 0.0
template <int N> AOT_INLINE Vector<float, N> splat_float(float value) {
  if constexpr (is_split<float, N>) {
    auto half = splat_float<N / 2>(value);
    return {half, half};
  } else {
    typename Vector<float, N>::Raw raw;
    for (int k = 0; k < N; ++k) raw[k] = value;
    return {raw};
  }
}
template <int N> AOT_INLINE Vector<double, N> splat_float(double value) {
  if constexpr (is_split<double, N>) {
    auto half = splat_float<N / 2>(value);
    return {half, half};
  } else {
    typename Vector<double, N>::Raw raw;
    for (int k = 0; k < N; ++k) raw[k] = value;
    return {raw};
  }
}
template <int N> AOT_INLINE Vector<float, N> splat(float value) { return splat_float<N>(value); }
template <int N> AOT_INLINE Vector<double, N> splat(double value) { return splat_float<N>(value); }
template <int N> AOT_INLINE Vector<int8_t, N> splat(int8_t value) { return splat_value<int8_t, N>(value); }
template <int N> AOT_INLINE Vector<uint8_t, N> splat(uint8_t value) { return splat_value<uint8_t, N>(value); }
template <int N> AOT_INLINE Vector<int16_t, N> splat(int16_t value) { return splat_value<int16_t, N>(value); }
template <int N> AOT_INLINE Vector<int32_t, N> splat(int32_t value) { return splat_value<int32_t, N>(value); }
template <int N> AOT_INLINE Vector<int64_t, N> splat(int64_t value) { return splat_value<int64_t, N>(value); }
template <int N> AOT_INLINE Mask<N> splat(bool value) { return {splat_value<int32_t, N>(-(int32_t)value)}; }

template <typename T, int N> AOT_INLINE T element(const Vector<T, N> &v, int k) {
  if constexpr (is_split<T, N>) return k < N / 2 ? element(v.low, k) : element(v.high, k - N / 2);
  else return v.raw[k];
}
template <int N> AOT_INLINE bool element(const Mask<N> &m, int k) { return element(m.lanes, k) != 0; }

template <int N, typename T> AOT_INLINE Vector<T, N> splat(Vector<T, 1> v) { return splat<N>(v.raw[0]); }
template <int N> AOT_INLINE Mask<N> splat(Mask<1> m) { return splat<N>(m.lanes.raw[0] != 0); }

template <typename T, int N> AOT_INLINE Vector<T, N> load_all(const T *p) {
  Vector<T, N> v;
  __builtin_memcpy(&v, p, N * sizeof(T));
  return v;
}
template <typename T, int N> AOT_INLINE void store_all(T *p, const Vector<T, N> &v) { __builtin_memcpy(p, &v, N * sizeof(T)); }

template <typename T, int N> AOT_INLINE Vector<T, N / 2> low_half(const Vector<T, N> &v) {
  if constexpr (is_split<T, N>) return v.low;
  else { Vector<T, N / 2> half; __builtin_memcpy(&half, &v, sizeof(half)); return half; }
}
template <typename T, int N> AOT_INLINE Vector<T, N / 2> high_half(const Vector<T, N> &v) {
  if constexpr (is_split<T, N>) return v.high;
  else { Vector<T, N / 2> half; __builtin_memcpy(&half, (const char *)&v + sizeof(half), sizeof(half)); return half; }
}
template <typename T, int N> AOT_INLINE Vector<T, N> join(const Vector<T, N / 2> &low, const Vector<T, N / 2> &high) {
  if constexpr (is_split<T, N>) return {low, high};
  else { Vector<T, N> v; __builtin_memcpy(&v, &low, sizeof(low)); __builtin_memcpy((char *)&v + sizeof(low), &high, sizeof(high)); return v; }
}

// Element type conversion as C does it (the caller deals with bool).
template <typename U, typename T, int N> AOT_INLINE Vector<U, N> convert_raw(const Vector<T, N> &v) {
  if constexpr (is_split<T, N> || is_split<U, N>)
    return join<U, N>(convert_raw<U>(low_half<T, N>(v)), convert_raw<U>(high_half<T, N>(v)));
  else return {__builtin_convertvector(v.raw, typename Vector<U, N>::Raw)};
}
// The same bits as elements of another type of the same size.
template <typename U, typename T, int N> AOT_INLINE Vector<U, N> bits_as(const Vector<T, N> &v) {
  static_assert(sizeof(T) == sizeof(U), "bits_as keeps the element size");
  if constexpr (is_split<T, N>) return {bits_as<U>(v.low), bits_as<U>(v.high)};
  else return {(typename Vector<U, N>::Raw)v.raw};
}

// ---- arithmetic --------------------------------------------------------------------------------------------------------------------------
// Integers wrap: kernels are compiled with -fwrapv.

#define AOT_BINARY(symbol)                                                                                  \
  template <typename T, int N> AOT_INLINE Vector<T, N> operator symbol(Vector<T, N> a, Vector<T, N> b) {   \
    if constexpr (is_split<T, N>) return {a.low symbol b.low, a.high symbol b.high};                       \
    else return {a.raw symbol b.raw};                                                                       \
  }
AOT_BINARY(+) AOT_BINARY(-) AOT_BINARY(*) AOT_BINARY(/) AOT_BINARY(&) AOT_BINARY(|) AOT_BINARY(^)
#undef AOT_BINARY
template <typename T, int N> AOT_INLINE Vector<T, N> operator-(Vector<T, N> a) {
  if constexpr (is_split<T, N>) return {-a.low, -a.high};
  else return {-a.raw};
}
template <typename T, int N> AOT_INLINE Vector<T, N> operator~(Vector<T, N> a) {
  if constexpr (is_split<T, N>) return {~a.low, ~a.high};
  else return {~a.raw};
}
template <int S, typename T, int N> AOT_INLINE Vector<T, N> shift_left(Vector<T, N> a) {
  if constexpr (is_split<T, N>) return {shift_left<S>(a.low), shift_left<S>(a.high)};
  else return {a.raw << S};
}
template <int S, typename T, int N> AOT_INLINE Vector<T, N> shift_right(Vector<T, N> a) {
  if constexpr (is_split<T, N>) return {shift_right<S>(a.low), shift_right<S>(a.high)};
  else return {a.raw >> S};
}

#define AOT_COMPARE(symbol)                                                                                 \
  template <typename T, int N> AOT_INLINE Mask<N> operator symbol(Vector<T, N> a, Vector<T, N> b) {        \
    if constexpr (is_split<T, N> || is_split<int32_t, N>) {                                                 \
      Mask<N / 2> low = low_half<T, N>(a) symbol low_half<T, N>(b), high = high_half<T, N>(a) symbol high_half<T, N>(b); \
      return {join<int32_t, N>(low.lanes, high.lanes)};                                                     \
    } else return {{__builtin_convertvector(a.raw symbol b.raw, typename Vector<int32_t, N>::Raw)}};        \
  }
AOT_COMPARE(==) AOT_COMPARE(!=) AOT_COMPARE(<) AOT_COMPARE(<=) AOT_COMPARE(>) AOT_COMPARE(>=)
#undef AOT_COMPARE

template <int N> AOT_INLINE Mask<N> operator&(Mask<N> a, Mask<N> b) { return {a.lanes & b.lanes}; }
template <int N> AOT_INLINE Mask<N> operator|(Mask<N> a, Mask<N> b) { return {a.lanes | b.lanes}; }
template <int N> AOT_INLINE Mask<N> operator^(Mask<N> a, Mask<N> b) { return {a.lanes ^ b.lanes}; }
template <int N> AOT_INLINE Mask<N> operator~(Mask<N> a) { return {~a.lanes}; }
template <int N> AOT_INLINE Mask<N> operator==(Mask<N> a, Mask<N> b) { return {~(a.lanes ^ b.lanes)}; }
template <int N> AOT_INLINE Mask<N> operator!=(Mask<N> a, Mask<N> b) { return a ^ b; }
template <int N> AOT_INLINE Mask<N> operator<(Mask<N> a, Mask<N> b) { return ~a & b; }
template <int N> AOT_INLINE Mask<N> operator<=(Mask<N> a, Mask<N> b) { return ~a | b; }
template <int N> AOT_INLINE Mask<N> operator>(Mask<N> a, Mask<N> b) { return a & ~b; }
template <int N> AOT_INLINE Mask<N> operator>=(Mask<N> a, Mask<N> b) { return a | ~b; }

template <typename T, int N> AOT_INLINE Vector<T, N> where(Mask<N> m, Vector<T, N> a, Vector<T, N> b) {
  if constexpr (is_split<T, N> || is_split<int32_t, N>) {
    Mask<N / 2> low = {low_half<int32_t, N>(m.lanes)}, high = {high_half<int32_t, N>(m.lanes)};
    return join<T, N>(where(low, low_half<T, N>(a), low_half<T, N>(b)), where(high, high_half<T, N>(a), high_half<T, N>(b)));
  } else return {__builtin_convertvector(m.lanes.raw, typename Vector<Integer<T>, N>::Raw) ? a.raw : b.raw};
}
template <int N> AOT_INLINE Mask<N> where(Mask<N> m, Mask<N> a, Mask<N> b) { return (m & a) | (~m & b); }

template <int N> AOT_INLINE bool any(Mask<N> m) {
  if constexpr (is_split<int32_t, N>) return any(Mask<N / 2>{m.lanes.low}) || any(Mask<N / 2>{m.lanes.high});
#if defined(AOT_AVX512)
  else if constexpr (N == 16) return any_512(m.lanes.raw);
#endif
#if defined(AOT_AVX512) || defined(AOT_AVX2)
  else if constexpr (N == 8) return any_256(m.lanes.raw);
#endif
#if defined(__SSE2__)
  else if constexpr (N == 4) return any_128(m.lanes.raw);
#endif
  else {
    int32_t result = 0;
    for (int k = 0; k < N; ++k) result |= m.lanes.raw[k];
    return result != 0;
  }
}
template <int N> AOT_INLINE bool all(Mask<N> m) { return !any(~m); }

template <int N> AOT_INLINE Mask<N> active(AllLanes) { return splat<N>(true); }
template <int N> AOT_INLINE Mask<N> active(FirstLanes lanes) {
  int32_t position[N];
  for (int k = 0; k < N; ++k) position[k] = k;
  return load_all<int32_t, N>(position) < splat<N>((int32_t)lanes.count);
}
// Elements that do not exist get `other`: a reduction's identity, a harmless divisor.
template <typename V> AOT_INLINE V where_active(AllLanes, V v, V) { return v; }
template <typename T, int N> AOT_INLINE Vector<T, N> where_active(FirstLanes lanes, Vector<T, N> v, Vector<T, N> other) {
  return where(active<N>(lanes), v, other);
}
template <int N> AOT_INLINE Mask<N> where_active(FirstLanes lanes, Mask<N> v, Mask<N> other) { return where(active<N>(lanes), v, other); }

// One scalar function applied to each element: the way for everything without vector code.
template <typename R, typename F, typename T, int N> AOT_INLINE Vector<R, N> each(F f, const Vector<T, N> &a) {
  T in[N]; R out[N];
  store_all(in, a);
  for (int k = 0; k < N; ++k) out[k] = f(in[k]);
  return load_all<R, N>(out);
}
template <typename R, typename F, typename T, int N> AOT_INLINE Vector<R, N> each(F f, const Vector<T, N> &a, const Vector<T, N> &b) {
  T left[N], right[N]; R out[N];
  store_all(left, a); store_all(right, b);
  for (int k = 0; k < N; ++k) out[k] = f(left[k], right[k]);
  return load_all<R, N>(out);
}

// ---- half precision ----------------------------------------------------------------------------------------------------------------------

template <int N> AOT_INLINE Vector<float, N> from_bfloat16(const Vector<uint16_t, N> &bits) {
  return bits_as<float>(shift_left<16>(convert_raw<uint32_t>(bits)));
}
// Round to nearest even, as the upper 16 bits of each element; NaN becomes 0x7fc0.
template <int N> AOT_INLINE Vector<uint32_t, N> bfloat16_bits(const Vector<float, N> &v) {
  auto bits = bits_as<uint32_t>(v);
  auto odd = shift_right<16>(bits) & splat_value<uint32_t, N>(1);
  auto rounded = shift_right<16>(bits + odd + splat_value<uint32_t, N>(0x7fff));
  return where(v == v, rounded, splat_value<uint32_t, N>(0x7fc0));
}
template <int N> AOT_INLINE Vector<uint16_t, N> to_bfloat16(const Vector<float, N> &v) { return convert_raw<uint16_t>(bfloat16_bits(v)); }
template <int N> AOT_INLINE Vector<float, N> round_bfloat16(const Vector<float, N> &v) { return bits_as<float>(shift_left<16>(bfloat16_bits(v))); }

AOT_INLINE float float_of_bits(uint32_t bits) { float f; __builtin_memcpy(&f, &bits, 4); return f; }
AOT_INLINE uint32_t bits_of_float(float f) { uint32_t bits; __builtin_memcpy(&bits, &f, 4); return bits; }

template <int N> AOT_INLINE Vector<float, N> from_float16(const Vector<uint16_t, N> &half) {
#if defined(AOT_AVX512)
  if constexpr (N == 16) return {float_of_half_512(half.raw)};
#endif
#if defined(AOT_AVX512) || (defined(AOT_AVX2) && defined(__F16C__))
  if constexpr (N == 8) return {float_of_half_256(half.raw)};
#endif
  // shift exponent and mantissa into place, then rescale by 2^112: right for denormals too; inf and nan get the whole exponent
  auto bits = convert_raw<uint32_t>(half);
  auto sign = shift_left<16>(bits & splat_value<uint32_t, N>(0x8000));
  auto magnitude = bits & splat_value<uint32_t, N>(0x7fff);
  auto scaled = bits_as<float>(shift_left<13>(magnitude)) * splat<N>(0x1p112f);
  auto special = magnitude >= splat_value<uint32_t, N>(0x7c00);
  auto value = where(special, shift_left<13>(magnitude) | splat_value<uint32_t, N>(0x7f800000), bits_as<uint32_t>(scaled));
  return bits_as<float>(value | sign);
}
template <int N> AOT_INLINE Vector<uint16_t, N> to_float16(const Vector<float, N> &v) {
#if defined(AOT_AVX512)
  if constexpr (N == 16) return {half_of_float_512(v.raw)};
#endif
#if defined(AOT_AVX512) || (defined(AOT_AVX2) && defined(__F16C__))
  if constexpr (N == 8) return {half_of_float_256(v.raw)};
#endif
  auto bits = bits_as<uint32_t>(v);
  auto sign = shift_right<16>(bits & splat_value<uint32_t, N>(0x80000000u));
  auto magnitude = bits & splat_value<uint32_t, N>(0x7fffffff);
  // normal results: rebias the exponent, round to nearest even on bit 13
  auto odd = shift_right<13>(magnitude) & splat_value<uint32_t, N>(1);
  auto normal = shift_right<13>(magnitude - splat_value<uint32_t, N>(0x38000000) + splat_value<uint32_t, N>(0xfff) + odd);
  // denormal results: adding 0.5 puts the rounded value into the low mantissa bits
  auto small = bits_as<uint32_t>(bits_as<float>(magnitude) + splat<N>(0.5f)) - splat_value<uint32_t, N>(0x3f000000);
  auto result = where(magnitude < splat_value<uint32_t, N>(0x38800000), small, normal);
  result = where(magnitude >= splat_value<uint32_t, N>(0x477ff000), splat_value<uint32_t, N>(0x7c00), result);
  result = where(magnitude > splat_value<uint32_t, N>(0x7f800000), splat_value<uint32_t, N>(0x7e00), result);
  return convert_raw<uint16_t>(result | sign);
}
template <int N> AOT_INLINE Vector<float, N> round_float16(const Vector<float, N> &v) { return from_float16(to_float16(v)); }

// ---- memory ------------------------------------------------------------------------------------------------------------------------------

template <typename T> struct StorageOf { typedef T Type; };
template <> struct StorageOf<bfloat16> { typedef uint16_t Type; };
template <> struct StorageOf<float16> { typedef uint16_t Type; };
template <> struct StorageOf<bool> { typedef uint8_t Type; };
template <typename T> using Storage = typename StorageOf<T>::Type;

// Values of stored elements, and back.
template <typename T, int N> AOT_INLINE auto decode(const Vector<Storage<T>, N> &v) {
  if constexpr (__is_same(T, bfloat16)) return from_bfloat16(v);
  else if constexpr (__is_same(T, float16)) return from_float16(v);
  else if constexpr (__is_same(T, bool)) return v != splat_value<uint8_t, N>(0);
  else return v;
}
template <typename T, typename V> struct Encode;
template <typename T, int N> struct Encode<T, Vector<T, N>> { static AOT_INLINE Vector<T, N> run(const Vector<T, N> &v) { return v; } };
template <int N> struct Encode<bfloat16, Vector<float, N>> { static AOT_INLINE auto run(const Vector<float, N> &v) { return to_bfloat16(v); } };
template <int N> struct Encode<float16, Vector<float, N>> { static AOT_INLINE auto run(const Vector<float, N> &v) { return to_float16(v); } };
template <int N> struct Encode<bool, Mask<N>> {
  static AOT_INLINE auto run(const Mask<N> &m) { return convert_raw<uint8_t>(m.lanes & splat_value<int32_t, N>(1)); }
};

template <int N, typename T> AOT_INLINE auto load(const T *p, AllLanes) { return decode<T, N>(load_all<Storage<T>, N>((const Storage<T> *)p)); }
template <int N, typename T> AOT_INLINE auto load(const T *p, FirstLanes lanes) {
  typedef Storage<T> S;
#if defined(AOT_AVX512)
  if constexpr (sizeof(S) == 4 && N == 16) {
    Vector<S, N> v = {(typename Vector<S, N>::Raw)load_first_32(p, lanes.count)};
    return decode<T, N>(v);
  }
  if constexpr (sizeof(S) == 8 && N == 8) {
    Vector<S, N> v = {(typename Vector<S, N>::Raw)load_first_64(p, lanes.count)};
    return decode<T, N>(v);
  }
#endif
  S elements[N] = {};
  for (int k = 0; k < lanes.count; ++k) elements[k] = ((const S *)p)[k];
  return decode<T, N>(load_all<S, N>(elements));
}
// A load that touches memory only where the mask holds; 0 elsewhere.
template <int N, typename T, typename L> AOT_INLINE auto load_masked(const T *p, L lanes, Mask<N> mask) {
  typedef Storage<T> S;
  if constexpr (__is_same(L, AllLanes)) if (all(mask)) return load<N>(p, lanes);
  S elements[N] = {};
  if (any(mask))
    for (int k = 0; k < count_of<N>(lanes); ++k) if (element(mask, k)) elements[k] = ((const S *)p)[k];
  return decode<T, N>(load_all<S, N>(elements));
}
// Element k is p[index(k)].
template <int N, typename T, typename L, typename F> AOT_INLINE auto gather(const T *p, L lanes, F index) {
  typedef Storage<T> S;
  S elements[N] = {};
  for (int k = 0; k < count_of<N>(lanes); ++k) elements[k] = ((const S *)p)[index(k)];
  return decode<T, N>(load_all<S, N>(elements));
}
template <int N, typename T, typename L, typename F> AOT_INLINE auto gather_masked(const T *p, L lanes, Mask<N> mask, F index) {
  typedef Storage<T> S;
  S elements[N] = {};
  for (int k = 0; k < count_of<N>(lanes); ++k) if (element(mask, k)) elements[k] = ((const S *)p)[index(k)];
  return decode<T, N>(load_all<S, N>(elements));
}
template <int N, typename T, typename V> AOT_INLINE void store(T *p, const V &v, AllLanes) {
  auto encoded = Encode<T, V>::run(v);
  store_all<Storage<T>, N>((Storage<T> *)p, encoded);
}
template <int N, typename T, typename V> AOT_INLINE void store(T *p, const V &v, FirstLanes lanes) {
  typedef Storage<T> S;
  auto encoded = Encode<T, V>::run(v);
#if defined(AOT_AVX512)
  if constexpr (sizeof(S) == 4 && N == 16) { store_first_32(p, (Ints512)encoded.raw, lanes.count); return; }
  if constexpr (sizeof(S) == 8 && N == 8) { store_first_64(p, (Longs512)encoded.raw, lanes.count); return; }
#endif
  S elements[N];
  store_all<S, N>(elements, encoded);
  for (int k = 0; k < lanes.count; ++k) ((S *)p)[k] = elements[k];
}
// p[index(k)] = element k, in the order of k; only where the mask holds.
template <int N, typename T, typename V, typename L, typename F> AOT_INLINE void scatter(T *p, const V &v, L lanes, F index) {
  typedef Storage<T> S;
  S elements[N];
  store_all<S, N>(elements, Encode<T, V>::run(v));
  for (int k = 0; k < count_of<N>(lanes); ++k) ((S *)p)[index(k)] = elements[k];
}
template <int N, typename T, typename V, typename L, typename F> AOT_INLINE void scatter_masked(T *p, const V &v, L lanes, Mask<N> mask, F index) {
  typedef Storage<T> S;
  S elements[N];
  store_all<S, N>(elements, Encode<T, V>::run(v));
  for (int k = 0; k < count_of<N>(lanes); ++k) if (element(mask, k)) ((S *)p)[index(k)] = elements[k];
}
// p[index(k)] += element k, one after the other: elements may meet. f16 and bf16 round after each addition, as torch does.
template <int N, typename T, typename V, typename L, typename F> AOT_INLINE void scatter_add(T *p, const V &v, L lanes, Mask<N> mask, F index) {
  for (int k = 0; k < count_of<N>(lanes); ++k) {
    if (!element(mask, k)) continue;
    T *place = p + index(k);
    auto sum = load<1>(place, AllLanes());
    if constexpr (__is_same(T, bool)) sum = sum | splat<1>(element(v, k));
    else sum = sum + splat<1>(element(v, k));
    store<1>(place, sum, AllLanes());
  }
}
template <int N, typename T, typename V, typename L> AOT_INLINE void store_add(T *p, const V &v, L lanes) {
  auto sum = load<N>((const T *)p, lanes);
  if constexpr (__is_same(T, bool)) store<N>(p, sum | v, lanes);
  else store<N>(p, sum + v, lanes);
}
template <typename V, int N> struct LaneArray { V values[N]; AOT_INLINE V operator[](int k) const { return values[k]; } };
template <typename T, int N> AOT_INLINE LaneArray<T, N> lane_array(const Vector<T, N> &v) { LaneArray<T, N> a; store_all(a.values, v); return a; }
// Element k is f(k): an index expression as data.
template <typename T, int N, typename F> AOT_INLINE Vector<T, N> index_values(F f) {
  T elements[N];
  for (int k = 0; k < N; ++k) elements[k] = (T)f(k);
  return load_all<T, N>(elements);
}
// Elements first, first + step, first + 2 step, ...
template <typename T, int N> AOT_INLINE Vector<T, N> index_sequence(int64_t first, int64_t step) {
  T elements[N];
  for (int k = 0; k < N; ++k) elements[k] = (T)k;
  auto positions = load_all<T, N>(elements);
  if constexpr (is_float<T>) return index_values<T, N>([=](int k) AOT_LAMBDA { return first + k * step; });
  else return splat_value<T, N>((T)first) + positions * splat_value<T, N>((T)step);
}
// The elements of an index vector that lie in [0, size); a lane outside sets status 1.
template <int N, typename L> AOT_INLINE Mask<N> in_range(const Vector<int64_t, N> &index, int64_t size, L lanes, Mask<N> mask, int32_t &status) {
  auto inside = (index >= splat<N>((int64_t)0)) & (index < splat<N>(size));
  auto wanted = mask & active<N>(lanes);
  if (any(wanted & ~inside)) status = 1;
  return wanted & inside;
}

// By a size of 0, as by 1: an index is computed for lanes that are masked off too, and the CPU would trap.
AOT_INLINE int64_t not_zero(int64_t divisor) { return divisor + (divisor == 0); }
AOT_INLINE int64_t floor_divide(int64_t a, int64_t b) { b = not_zero(b); int64_t q = a / b; return q - (a % b != 0 && (a < 0) != (b < 0)); }
AOT_INLINE int64_t floor_modulo(int64_t a, int64_t b) { b = not_zero(b); int64_t m = a % b; return m + (m != 0 && (m < 0) != (b < 0) ? b : 0); }
AOT_INLINE int64_t minimum_index(int64_t a, int64_t b) { return a < b ? a : b; }
AOT_INLINE int64_t maximum_index(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace aotcompile
