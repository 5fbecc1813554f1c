// The scalar operators of kernels on vectors. Float functions are inlined polynomials (errors within 2 units in the last place, also for denormal
// and large arguments, inf and nan); what has no polynomial here calls the C library element by element.
#pragma once
#include "aotcompile_vector.h"

namespace aotcompile {

template <int N> using Float = Vector<float, N>;

// ---- basics -------------------------------------------------------------------------------------------------------------------------------

// a * b + c; one rounding where the machine has the instruction (polynomials only: `fma` below is the exact operator).
template <int N> AOT_INLINE Float<N> multiply_add(Float<N> a, Float<N> b, Float<N> c) {
  if constexpr (is_split<float, N>) return {multiply_add(a.low, b.low, c.low), multiply_add(a.high, b.high, c.high)};
#if defined(AOT_AVX512)
  else if constexpr (N == 16) return {multiply_add_512(a.raw, b.raw, c.raw)};
#endif
#if defined(AOT_AVX512) || defined(AOT_AVX2)
  else if constexpr (N == 8) return {multiply_add_256(a.raw, b.raw, c.raw)};
  else if constexpr (N == 4) return {multiply_add_128(a.raw, b.raw, c.raw)};
#endif
  else if constexpr (FAST_FMA) {
    typename Float<N>::Raw result;
    for (int k = 0; k < N; ++k) result[k] = __builtin_fmaf(a.raw[k], b.raw[k], c.raw[k]);
    return {result};
  } else return a * b + c;
}
template <int N> AOT_INLINE Float<N> multiply_add(Float<N> a, Float<N> b, float c) { return multiply_add(a, b, splat<N>(c)); }
template <int N> AOT_INLINE Float<N> multiply_add(Float<N> a, float b, Float<N> c) { return multiply_add(a, splat<N>(b), c); }

template <int N> AOT_INLINE Float<N> fma(Float<N> a, Float<N> b, Float<N> c) {
  if constexpr (FAST_FMA) return multiply_add(a, b, c);
  float x[N], y[N], z[N];
  store_all(x, a); store_all(y, b); store_all(z, c);
  for (int k = 0; k < N; ++k) x[k] = __builtin_fmaf(x[k], y[k], z[k]);
  return load_all<float, N>(x);
}
template <int N> AOT_INLINE Vector<double, N> fma(Vector<double, N> a, Vector<double, N> b, Vector<double, N> c) {
  double x[N], y[N], z[N];
  store_all(x, a); store_all(y, b); store_all(z, c);
  for (int k = 0; k < N; ++k) x[k] = __builtin_fma(x[k], y[k], z[k]);
  return load_all<double, N>(x);
}

template <typename T, int N> AOT_INLINE Mask<N> isnan(Vector<T, N> a) { return a != a; }
template <typename T, int N> AOT_INLINE Vector<T, N> sign_bits(Vector<T, N> a) {
  typedef Unsigned<T> U;
  return bits_as<T>(bits_as<U>(a) & splat_value<U, N>((U)1 << (8 * sizeof(T) - 1)));
}
template <typename T, int N> AOT_INLINE Vector<T, N> neg(Vector<T, N> a) { return -a; }
template <typename T, int N> AOT_INLINE Vector<T, N> abs(Vector<T, N> a) {
  typedef Unsigned<T> U;
  if constexpr (is_float<T>) return bits_as<T>(bits_as<U>(a) & splat_value<U, N>(((U)1 << (8 * sizeof(T) - 1)) - 1));
  else if constexpr (!is_signed<T>) return a;
  else return where(a < splat_value<T, N>(0), -a, a);
}
template <typename T, int N> AOT_INLINE Vector<T, N> copysign(Vector<T, N> a, Vector<T, N> b) {
  typedef Unsigned<T> U;
  return bits_as<T>(bits_as<U>(abs(a)) | bits_as<U>(sign_bits(b)));
}
template <typename T, int N> AOT_INLINE Mask<N> isinf(Vector<T, N> a) { return abs(a) == splat<N>((T)__builtin_inf()); }
template <typename T, int N> AOT_INLINE Mask<N> signbit(Vector<T, N> a) { return bits_as<Integer<T>>(a) < splat_value<Integer<T>, N>(0); }
template <int N> AOT_INLINE Mask<N> signbit(Vector<uint8_t, N>) { return splat<N>(false); }
template <typename T, int N> AOT_INLINE Vector<T, N> sign(Vector<T, N> a) {
  auto zero = splat_value<T, N>(0), one = splat_value<T, N>(1);
  if constexpr (!is_signed<T>) return where(a > zero, one, zero);
  else return where(a > zero, one, where(a < zero, -one, zero));
}
// nan wins: where b is nan the comparison is false and takes b
template <typename T, int N> AOT_INLINE Vector<T, N> maximum(Vector<T, N> a, Vector<T, N> b) {
  auto larger = where(a > b, a, b);
  if constexpr (is_float<T>) return where(a != a, a, larger);
  else return larger;
}
template <typename T, int N> AOT_INLINE Vector<T, N> minimum(Vector<T, N> a, Vector<T, N> b) {
  auto smaller = where(a < b, a, b);
  if constexpr (is_float<T>) return where(a != a, a, smaller);
  else return smaller;
}
template <int N> AOT_INLINE Mask<N> maximum(Mask<N> a, Mask<N> b) { return a | b; }
template <int N> AOT_INLINE Mask<N> minimum(Mask<N> a, Mask<N> b) { return a & b; }

// ---- rounding: adding and subtracting 2^mantissa bits rounds to nearest even; larger values are integers already ---------------------------

template <typename T> constexpr T ROUNDER = sizeof(T) == 4 ? (T)0x1p23 : (T)0x1p52;
template <typename T, int N> AOT_INLINE Vector<T, N> round(Vector<T, N> a) {
  auto magnitude = abs(a), rounder = splat<N>(ROUNDER<T>);
  auto rounded = (magnitude + rounder) - rounder;
  return where(magnitude < rounder, copysign(rounded, a), a);
}
template <typename T, int N> AOT_INLINE Vector<T, N> floor(Vector<T, N> a) {
  auto rounded = round(a);
  return copysign(where(rounded > a, rounded - splat<N>((T)1), rounded), a);
}
template <typename T, int N> AOT_INLINE Vector<T, N> ceil(Vector<T, N> a) {
  auto rounded = round(a);
  return copysign(where(rounded < a, rounded + splat<N>((T)1), rounded), a);
}
template <typename T, int N> AOT_INLINE Vector<T, N> trunc(Vector<T, N> a) {
  auto magnitude = abs(a), rounded = round(magnitude);
  return copysign(where(rounded > magnitude, rounded - splat<N>((T)1), rounded), a);
}

template <typename T, int N> AOT_INLINE Vector<T, N> sqrt(Vector<T, N> a) {
  if constexpr (is_split<T, N>) return {sqrt(a.low), sqrt(a.high)};
#if defined(AOT_AVX512)
  else if constexpr (N * sizeof(T) == 64) return {square_root_512(a.raw)};
#endif
#if defined(AOT_AVX512) || defined(AOT_AVX2)
  else if constexpr (N * sizeof(T) == 32) return {square_root_256(a.raw)};
#endif
  else return each<T>([](T x) { return sizeof(T) == 4 ? (T)__builtin_sqrtf((float)x) : (T)__builtin_sqrt((double)x); }, a);
}
template <typename T, int N> AOT_INLINE Vector<T, N> truediv(Vector<T, N> a, Vector<T, N> b) { return a / b; }
template <typename T, int N> AOT_INLINE Vector<T, N> reciprocal(Vector<T, N> a) { return splat<N>((T)1) / a; }
template <typename T, int N> AOT_INLINE Vector<T, N> rsqrt(Vector<T, N> a) { return splat<N>((T)1) / sqrt(a); }

// ---- elementary functions of float ---------------------------------------------------------------------------------------------------------

// 2^n for an integer-valued n in [-126, 127]
template <int N> AOT_INLINE Float<N> power_of_two(Float<N> n) {
  return bits_as<float>(shift_left<23>(convert_raw<int32_t>(n) + splat<N>((int32_t)127)));
}
template <int N> AOT_INLINE Float<N> round_small(Float<N> a) { return (a + splat<N>(0x1.8p23f)) - splat<N>(0x1.8p23f); }
// e^r - 1 for |r| <= ln(2)/2 (Cephes, expf)
template <int N> AOT_INLINE Float<N> exponential_minus_one(Float<N> r) {
  auto p = splat<N>(1.9875691500e-4f);
  p = multiply_add(p, r, 1.3981999507e-3f);
  p = multiply_add(p, r, 8.3334519073e-3f);
  p = multiply_add(p, r, 4.1665795894e-2f);
  p = multiply_add(p, r, 1.6666665459e-1f);
  p = multiply_add(p, r, 5.0000001201e-1f);
  return multiply_add(p, r * r, r);
}
// a clamped to [low, high], nan kept
template <int N> AOT_INLINE Float<N> clamp(Float<N> a, float low, float high) {
  a = where(a < splat<N>(low), splat<N>(low), a);
  return where(a > splat<N>(high), splat<N>(high), a);
}
// value * 2^n for n in [-252, 254], right for denormal results
template <int N> AOT_INLINE Float<N> scale(Float<N> value, Float<N> n) {
#if defined(AOT_AVX512)
  if constexpr (is_split<float, N>) return {scale(value.low, n.low), scale(value.high, n.high)};
  else if constexpr (N == 16) return {scale_512(value.raw, n.raw)};
#endif
  auto half = round_small(n * splat<N>(0.5f));
  return value * power_of_two(half) * power_of_two(n - half);
}
template <int N> AOT_INLINE Float<N> exp(Float<N> a) {
  auto x = clamp(a, -104.0f, 89.0f);
  auto n = round_small(x * splat<N>(1.44269504f));
  auto r = multiply_add(n, -0.693359375f, x);
  r = multiply_add(n, 2.12194440e-4f, r);
  return scale(exponential_minus_one(r) + splat<N>(1.0f), n);
}
// e^a for a in [-87, 88], the nearest end for others: one multiplication scales
template <int N> AOT_INLINE Float<N> bounded_exp(Float<N> a) {
  auto x = clamp(a, -87.0f, 88.0f);
  auto n = round_small(x * splat<N>(1.44269504f));
  auto r = multiply_add(n, -0.693359375f, x);
  r = multiply_add(n, 2.12194440e-4f, r);
  return (exponential_minus_one(r) + splat<N>(1.0f)) * power_of_two(n);
}
template <int N> AOT_INLINE Float<N> exp2(Float<N> a) {
  auto x = clamp(a, -151.0f, 129.0f);
  auto n = round_small(x);
  return scale(exponential_minus_one((x - n) * splat<N>(0.693147180559945f)) + splat<N>(1.0f), n);
}
template <int N> AOT_INLINE Float<N> expm1(Float<N> a) {
  auto x = clamp(a, -30.0f, 89.0f);
  auto n = round_small(x * splat<N>(1.44269504f));
  auto r = multiply_add(n, -0.693359375f, x);
  r = multiply_add(n, 2.12194440e-4f, r);
  // half of 2^n (e^r - 1) + (2^n - 1), so that n = 128 does not overflow on the way
  auto half = power_of_two(n - splat<N>(1.0f));
  auto result = multiply_add(half, exponential_minus_one(r), half - splat<N>(0.5f));
  return where(abs(a) < splat<N>(0x1p-24f), a, result + result);
}
// log(a) = exponent * ln(2) + log(1 + mantissa), mantissa in [sqrt(1/2) - 1, sqrt(2) - 1]
template <int N> AOT_INLINE void split_logarithm(Float<N> a, Float<N> &exponent, Float<N> &mantissa) {
  auto denormal = a < splat<N>(0x1p-126f);
  auto x = where(denormal, a * splat<N>(0x1p23f), a);
  auto bits = bits_as<int32_t>(x);
  // bits relative to sqrt(1/2): the exponent field counts powers of two from there
  auto relative = bits - splat<N>((int32_t)0x3f3504f3);
  auto e = shift_right<23>(relative);
  mantissa = bits_as<float>(bits - shift_left<23>(e)) - splat<N>(1.0f);
  exponent = convert_raw<float>(e) - where(denormal, splat<N>(23.0f), splat<N>(0.0f));
}
// log(1 + m) - m + m^2/2, over m^3 (Cephes, logf)
template <int N> AOT_INLINE Float<N> logarithm_tail(Float<N> m) {
  auto p = splat<N>(7.0376836292e-2f);
  p = multiply_add(p, m, -1.1514610310e-1f);
  p = multiply_add(p, m, 1.1676998740e-1f);
  p = multiply_add(p, m, -1.2420140846e-1f);
  p = multiply_add(p, m, 1.4249322787e-1f);
  p = multiply_add(p, m, -1.6668057665e-1f);
  p = multiply_add(p, m, 2.0000714765e-1f);
  p = multiply_add(p, m, -2.4999993993e-1f);
  return multiply_add(p, m, 3.3333331174e-1f);
}
// log of 0, inf, negative numbers and nan
template <int N> AOT_INLINE Float<N> logarithm_special(Float<N> a, Float<N> result) {
  auto zero = splat<N>(0.0f), infinity = splat<N>((float)__builtin_inf());
  result = where(a == zero, -infinity, result);
  result = where(a == infinity, infinity, result);
  return where((a < zero) | (a != a), splat<N>(__builtin_nanf("")), result);
}
template <int N> AOT_INLINE Float<N> log(Float<N> a) {
  Float<N> e, m;
  split_logarithm(a, e, m);
  auto square = m * m;
  auto y = square * m * logarithm_tail(m);
  y = multiply_add(e, -2.12194440e-4f, y);
  y = multiply_add(square, splat<N>(-0.5f), y);
  return logarithm_special(a, multiply_add(e, 0.693359375f, m + y));
}
// log(a) * high + log(a) * low + e: the product's rounding error is carried along
template <int N> AOT_INLINE Float<N> log2(Float<N> a) {
  Float<N> e, m;
  split_logarithm(a, e, m);
  auto square = m * m;
  auto y = multiply_add(square, splat<N>(-0.5f), square * m * logarithm_tail(m));
  // (m + y) * log2(e), with log2(e) = 1 + 0.44269504
  auto z = multiply_add(y, splat<N>(0.44269504088896340735992f), m * splat<N>(0.44269504088896340735992f)) + y + m;
  return logarithm_special(a, z + e);
}
template <int N> AOT_INLINE Float<N> log10(Float<N> a) {
  Float<N> e, m;
  split_logarithm(a, e, m);
  auto square = m * m;
  auto y = multiply_add(square, splat<N>(-0.5f), square * m * logarithm_tail(m));
  auto z = multiply_add(y, splat<N>(7.00731903251827651129e-4f), m * splat<N>(7.00731903251827651129e-4f));
  z = multiply_add(y, splat<N>(4.3359375e-1f), z);
  z = multiply_add(m, splat<N>(4.3359375e-1f), z);
  z = multiply_add(e, 2.48745663981195213739e-4f, z);
  return logarithm_special(a, multiply_add(e, 3.00781250e-1f, z));
}
template <int N> AOT_INLINE Float<N> log1p(Float<N> a) {
  auto one = splat<N>(1.0f), u = one + a;
  auto lost = (a - (u - one)) / u;                      // what rounding 1 + a lost, first order
  auto finite = (u > splat<N>(0.0f)) & (u < splat<N>((float)__builtin_inf()));
  auto result = log(u);
  return where(abs(a) < splat<N>(0x1p-25f), a, where(finite, result + lost, result));
}

// a = quadrant * pi/2 + r, |r| <= pi/4, for |a| < 1e5
template <int N> AOT_INLINE Vector<int32_t, N> reduce_quadrant(Float<N> a, Float<N> &r) {
  auto n = round_small(a * splat<N>(0.636619772f));
  if constexpr (FAST_FMA) {
    r = multiply_add(n, -0x1.921fb0p+00f, a);
    r = multiply_add(n, -0x1.5110b4p-22f, r);
    r = multiply_add(n, -0x1.846988p-48f, r);
  } else {
    auto exact = convert_raw<double>(a) - convert_raw<double>(n) * splat<N>(1.5707963267341256);
    r = convert_raw<float>(exact - convert_raw<double>(n) * splat<N>(6.077100506506192e-11));
  }
  return convert_raw<int32_t>(n);
}
template <int N> AOT_INLINE Float<N> sine_polynomial(Float<N> r, Float<N> square) {
  auto p = multiply_add(splat<N>(-1.9515295891e-4f), square, 8.3321608736e-3f);
  p = multiply_add(p, square, -1.6666654611e-1f);
  return multiply_add(p * square, r, r);
}
template <int N> AOT_INLINE Float<N> cosine_polynomial(Float<N> square) {
  auto p = multiply_add(splat<N>(2.443315711809948e-5f), square, -1.388731625493765e-3f);
  p = multiply_add(p, square, 4.166664568298827e-2f);
  return multiply_add(p * square, square, multiply_add(square, splat<N>(-0.5f), splat<N>(1.0f)));
}
template <int N> AOT_INLINE Mask<N> beyond_reduction(Float<N> a) { return ~(abs(a) < splat<N>(1e5f)); }
__attribute__((noinline, unused)) static void sine_elements(float *x, int n) { for (int k = 0; k < n; ++k) x[k] = __builtin_sinf(x[k]); }
__attribute__((noinline, unused)) static void cosine_elements(float *x, int n) { for (int k = 0; k < n; ++k) x[k] = __builtin_cosf(x[k]); }

// sin(a + shift * pi/2) by quadrant
template <int N> AOT_INLINE Float<N> sine_of_quadrant(Float<N> a, int32_t shift) {
  Float<N> r;
  auto quadrant = reduce_quadrant(a, r) + splat<N>(shift);
  auto square = r * r;
  auto odd = (quadrant & splat<N>((int32_t)1)) != splat<N>((int32_t)0);
  auto value = where(odd, cosine_polynomial(square), sine_polynomial(r, square));
  auto flip = shift_left<30>(quadrant & splat<N>((int32_t)2));
  return bits_as<float>(bits_as<int32_t>(value) ^ flip);
}
template <int N> AOT_INLINE Float<N> sin(Float<N> a) {
  auto value = sine_of_quadrant(a, 0);
  auto beyond = beyond_reduction(a);
  if (__builtin_expect(any(beyond), 0)) {
    float x[N];
    store_all(x, a);
    sine_elements(x, N);
    value = where(beyond, load_all<float, N>(x), value);
  }
  return where(a == splat<N>(0.0f), a, value);
}
template <int N> AOT_INLINE Float<N> cos(Float<N> a) {
  auto value = sine_of_quadrant(a, 1);
  auto beyond = beyond_reduction(a);
  if (__builtin_expect(any(beyond), 0)) {
    float x[N];
    store_all(x, a);
    cosine_elements(x, N);
    value = where(beyond, load_all<float, N>(x), value);
  }
  return value;
}
template <int N> AOT_INLINE Float<N> sigmoid(Float<N> a) { return splat<N>(1.0f) / (splat<N>(1.0f) + exp(-a)); }
// Cephes, tanhf
template <int N> AOT_INLINE Float<N> tanh(Float<N> a) {
  auto magnitude = abs(a), square = a * a;
  auto p = multiply_add(splat<N>(-5.70498872745e-3f), square, 2.06390887954e-2f);
  p = multiply_add(p, square, -5.37397155531e-2f);
  p = multiply_add(p, square, 1.33314422036e-1f);
  p = multiply_add(p, square, -3.33332819422e-1f);
  auto small = where(a == splat<N>(0.0f), a, multiply_add(p * square, a, a));
  auto one = splat<N>(1.0f);
  auto large = one - splat<N>(2.0f) / (bounded_exp(magnitude + magnitude) + one);
  return where(magnitude < splat<N>(0.625f), small, copysign(large, a));
}
// N. Juffa's minimax approximations of erf
template <int N> AOT_INLINE Float<N> erf(Float<N> a) {
  auto t = abs(a), s = a * a;
  auto r = multiply_add(splat<N>(-1.72853470e-5f), t, 3.83197126e-4f);
  auto u = multiply_add(splat<N>(-3.88396438e-3f), t, 2.42546219e-2f);
  r = multiply_add(r, s, u);
  r = multiply_add(r, t, -1.06777877e-1f);
  r = multiply_add(r, t, -6.34846687e-1f);
  r = multiply_add(r, t, -1.28717512e-1f);
  r = multiply_add(r, t, -t);
  auto large = splat<N>(1.0f) - bounded_exp(where(t > splat<N>(6.0f), splat<N>(-80.0f), r));
  auto p = splat<N>(-5.96761703e-4f);
  p = multiply_add(p, s, 4.99119423e-3f);
  p = multiply_add(p, s, -2.67681349e-2f);
  p = multiply_add(p, s, 1.12819925e-1f);
  p = multiply_add(p, s, -3.76125336e-1f);
  p = multiply_add(p, s, 1.28379166e-1f);
  return where(t > splat<N>(0.927734375f), copysign(large, a), multiply_add(p, a, a));
}

// ---- functions that call the C library element by element ------------------------------------------------------------------------------------

#define AOT_ELEMENTWISE_DOUBLE(name) \
  template <int N> AOT_INLINE Vector<double, N> name(Vector<double, N> a) { return each<double>([](double x) { return __builtin_##name(x); }, a); }
#define AOT_ELEMENTWISE(name)    \
  AOT_ELEMENTWISE_DOUBLE(name)   \
  template <int N> AOT_INLINE Float<N> name(Float<N> a) { return each<float>([](float x) { return __builtin_##name##f(x); }, a); }
#define AOT_ELEMENTWISE2(name)                                                                                                        \
  template <int N> AOT_INLINE Vector<double, N> name(Vector<double, N> a, Vector<double, N> b) {                                       \
    return each<double>([](double x, double y) { return __builtin_##name(x, y); }, a, b);                                                       \
  }                                                                                                                                   \
  template <int N> AOT_INLINE Float<N> name(Float<N> a, Float<N> b) { return each<float>([](float x, float y) { return __builtin_##name##f(x, y); }, a, b); }
AOT_ELEMENTWISE_DOUBLE(exp) AOT_ELEMENTWISE_DOUBLE(exp2) AOT_ELEMENTWISE_DOUBLE(expm1) AOT_ELEMENTWISE_DOUBLE(log) AOT_ELEMENTWISE_DOUBLE(log2)
AOT_ELEMENTWISE_DOUBLE(log10) AOT_ELEMENTWISE_DOUBLE(log1p) AOT_ELEMENTWISE_DOUBLE(sin) AOT_ELEMENTWISE_DOUBLE(cos) AOT_ELEMENTWISE_DOUBLE(tanh)
AOT_ELEMENTWISE_DOUBLE(erf)
AOT_ELEMENTWISE(tan) AOT_ELEMENTWISE(sinh) AOT_ELEMENTWISE(cosh) AOT_ELEMENTWISE(asin) AOT_ELEMENTWISE(acos) AOT_ELEMENTWISE(atan)
AOT_ELEMENTWISE(asinh) AOT_ELEMENTWISE(acosh) AOT_ELEMENTWISE(atanh) AOT_ELEMENTWISE(erfc)
AOT_ELEMENTWISE2(atan2) AOT_ELEMENTWISE2(hypot) AOT_ELEMENTWISE2(pow)
#undef AOT_ELEMENTWISE
#undef AOT_ELEMENTWISE2
#undef AOT_ELEMENTWISE_DOUBLE
template <int N> AOT_INLINE Vector<double, N> sigmoid(Vector<double, N> a) { return splat<N>(1.0) / (splat<N>(1.0) + exp(-a)); }
// the reentrant forms: lgamma itself writes the global signgam
template <int N> AOT_INLINE Float<N> lgamma(Float<N> a) { return each<float>([](float x) { int sign; return __builtin_lgammaf_r(x, &sign); }, a); }
template <int N> AOT_INLINE Vector<double, N> lgamma(Vector<double, N> a) { return each<double>([](double x) { int sign; return __builtin_lgamma_r(x, &sign); }, a); }

// ---- integer powers, shifts, division --------------------------------------------------------------------------------------------------------

template <typename T> AOT_INLINE T integer_power(T base, T exponent) {
  if (is_signed<T> && exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? (exponent & 1 ? T(-1) : T(1)) : T(0);
  typedef Unsigned<T> U;
  uint64_t result = 1, factor = (U)base;
  for (U e = (U)exponent; e; e >>= 1) { if (e & 1) result *= factor; factor *= factor; }
  return (T)result;
}
template <typename T, int N> AOT_INLINE Vector<T, N> pow(Vector<T, N> a, Vector<T, N> b) {
  return each<T>([](T x, T y) { return integer_power<T>(x, y); }, a, b);
}
template <typename T, int N> AOT_INLINE Mask<N> outside_width(Vector<T, N> b) {
  constexpr T width = 8 * sizeof(T);
  auto too_large = b >= splat_value<T, N>(width);
  if constexpr (is_signed<T>) return too_large | (b < splat_value<T, N>(0));
  else return too_large;
}
template <typename T, int N> AOT_INLINE Vector<T, N> left_shift(Vector<T, N> a, Vector<T, N> b) {
  auto shifted = each<T>([](T x, T y) { return (T)((Unsigned<T>)x << (y & (8 * sizeof(T) - 1))); }, a, b);
  return where(outside_width(b), splat_value<T, N>(0), shifted);
}
template <typename T, int N> AOT_INLINE Vector<T, N> right_shift(Vector<T, N> a, Vector<T, N> b) {
  auto shifted = each<T>([](T x, T y) { return (T)(x >> (y & (8 * sizeof(T) - 1))); }, a, b);
  auto zero = splat_value<T, N>(0);
  if constexpr (is_signed<T>) return where(outside_width(b), where(a < zero, splat_value<T, N>(-1), zero), shifted);
  else return where(outside_width(b), zero, shifted);
}

// A zero divisor in a wanted lane sets status 2; the division itself never traps.
template <typename T, int N> AOT_INLINE Vector<T, N> safe_divisor(Vector<T, N> b, Mask<N> wanted, int32_t &status) {
  auto zero = b == splat_value<T, N>(0);
  if (any(zero & wanted)) status = 2;
  return where(zero, splat_value<T, N>(1), b);
}
// b == -1: the quotient is -a, wrapping for the smallest integer, where the instruction would trap
template <typename T> AOT_INLINE T quotient(T a, T b) { return is_signed<T> && b == (T)-1 ? (T)(0 - (Unsigned<T>)a) : (T)(a / b); }
template <typename T> AOT_INLINE T modulus(T a, T b) { return is_signed<T> && b == (T)-1 ? T(0) : (T)(a % b); }

template <typename T, int N> AOT_INLINE Vector<T, N> truncdiv(Vector<T, N> a, Vector<T, N> b, Mask<N> wanted, int32_t &status) {
  if constexpr (is_float<T>) return trunc(a / b);
  else return each<T>([](T x, T y) { return quotient<T>(x, y); }, a, safe_divisor(b, wanted, status));
}
template <typename T, int N> AOT_INLINE Vector<T, N> fmod(Vector<T, N> a, Vector<T, N> b) {
  return each<T>([](T x, T y) { return sizeof(T) == 4 ? (T)__builtin_fmodf((float)x, (float)y) : (T)__builtin_fmod((double)x, (double)y); }, a, b);
}
template <typename T, int N> AOT_INLINE Vector<T, N> fmod(Vector<T, N> a, Vector<T, N> b, Mask<N> wanted, int32_t &status) {
  if constexpr (is_float<T>) return fmod(a, b);
  else return each<T>([](T x, T y) { return modulus<T>(x, y); }, a, safe_divisor(b, wanted, status));
}
template <typename T, int N> AOT_INLINE Vector<T, N> remainder(Vector<T, N> a, Vector<T, N> b, Mask<N> wanted, int32_t &status) {
  auto zero = splat_value<T, N>(0);
  auto m = fmod(a, b, wanted, status);
  return where((m != zero) & ((b < zero) != (m < zero)), m + b, m);
}
template <typename T, int N> AOT_INLINE Vector<T, N> floordiv(Vector<T, N> a, Vector<T, N> b, Mask<N> wanted, int32_t &status) {
  if constexpr (is_float<T>) {
    auto zero = splat<N>((T)0), one = splat<N>((T)1), half = splat<N>((T)0.5);
    auto m = fmod(a, b), d = (a - m) / b;
    d = where((m != zero) & ((b < zero) != (m < zero)), d - one, d);
    auto q = floor(d);
    q = where(d - q > half, q + one, q);
    q = where(d != zero, q, copysign(zero, a / b));
    return where(b == zero, a / b, q);
  } else {
    return each<T>([](T x, T y) {
      T q = quotient<T>(x, y), m = modulus<T>(x, y);
      return (T)(m != 0 && (m < 0) != (y < 0) ? q - 1 : q);
    }, a, safe_divisor(b, wanted, status));
  }
}

// ---- conversions: C++ and torch semantics ------------------------------------------------------------------------------------------------------

template <typename T, typename S, int N> AOT_INLINE auto cast(const Vector<S, N> &v) {
  if constexpr (__is_same(T, bool)) return v != splat_value<S, N>(0);
  else if constexpr (__is_same(T, bfloat16)) return round_bfloat16(convert_raw<float>(v));
  else if constexpr (__is_same(T, float16)) return round_float16(convert_raw<float>(v));
  else if constexpr (__is_same(T, S)) return v;
  else if constexpr (is_float<S> && !is_float<T> && sizeof(T) < 4) return convert_raw<T>(convert_raw<int32_t>(v));
  else return convert_raw<T>(v);
}
template <typename T, int N> AOT_INLINE auto cast(const Mask<N> &m) {
  if constexpr (__is_same(T, bool)) return m;
  else return cast<T>(m.lanes & splat_value<int32_t, N>(1));
}

// ---- reductions ----------------------------------------------------------------------------------------------------------------------------------

struct Sum { template <typename V> static AOT_INLINE V combine(V a, V b) { return a + b; } };
struct Product { template <typename V> static AOT_INLINE V combine(V a, V b) { return a * b; } };
struct Maximum { template <typename V> static AOT_INLINE V combine(V a, V b) { return maximum(a, b); } };
struct Minimum { template <typename V> static AOT_INLINE V combine(V a, V b) { return minimum(a, b); } };
struct Any { template <typename V> static AOT_INLINE V combine(V a, V b) { return a | b; } };
struct All { template <typename V> static AOT_INLINE V combine(V a, V b) { return a & b; } };
struct XorSum { template <typename V> static AOT_INLINE V combine(V a, V b) { return a ^ b; } };

// All elements as one: halves first, so the order is the same on every CPU of one level.
template <typename R, typename T, int N> AOT_INLINE Vector<T, 1> reduce_lanes(const Vector<T, N> &v) {
  if constexpr (N == 1) return v;
  else return reduce_lanes<R>(R::combine(low_half<T, N>(v), high_half<T, N>(v)));
}
template <typename R, int N> AOT_INLINE Mask<1> reduce_lanes(const Mask<N> &m) {
  if constexpr (N == 1) return m;
  else return reduce_lanes<R>(R::combine(Mask<N / 2>{low_half<int32_t, N>(m.lanes)}, Mask<N / 2>{high_half<int32_t, N>(m.lanes)}));
}

// The greatest (smallest) value seen and its position; the first of equals; nan beats everything, the first nan stays.
template <typename T, int N, bool Greatest> struct Extreme {
  Vector<T, N> value;
  Vector<int64_t, N> position;
  AOT_INLINE Extreme(Vector<T, N> identity) : value(identity), position(splat<N>((int64_t)INT64_MAX)) {}
  AOT_INLINE void update(const Vector<T, N> &v, const Vector<int64_t, N> &at, const Mask<N> &wanted) {
    auto better = Greatest ? v > value : v < value;
    if constexpr (is_float<T>) better = better | ((v != v) & (value == value));
    better = better & wanted;
    value = where(better, v, value);
    position = where(better, at, position);
  }
  // no element beat the identity: all are equal to it, and the first is the answer
  AOT_INLINE Vector<int64_t, N> result() const { return where(position == splat<N>((int64_t)INT64_MAX), splat<N>((int64_t)0), position); }
  AOT_INLINE Vector<int64_t, 1> reduced() const {
    auto values = lane_array(value);
    auto positions = lane_array(position);
    T best = values[0];
    int64_t at = positions[0];
    for (int k = 1; k < N; ++k) {
      T v = values[k];
      bool nan = v != v, best_nan = best != best;
      bool better = nan ? !best_nan || positions[k] < at : !best_nan && (Greatest ? v > best : v < best);
      bool equal = !nan && !best_nan && v == best && positions[k] < at;
      if (better || equal) { best = v; at = positions[k]; }
    }
    return splat<1>((int64_t)(at == INT64_MAX ? 0 : at));
  }
};

}  // namespace aotcompile
