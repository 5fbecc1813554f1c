// The few machine instructions that vector extensions cannot name, and the CPU level. GCC's <immintrin.h> takes 0.5 s to read, longer than a kernel
// takes to compile: with GCC its builtins are used directly.
#pragma once
#include <stdint.h>

#define AOT_INLINE inline __attribute__((always_inline))
#define AOT_LAMBDA __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__FMA__)
#define AOT_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__)
#define AOT_AVX2 1
#endif
#if defined(__clang__) && defined(__x86_64__)
#include <immintrin.h>
#endif

namespace aotcompile {

#if defined(AOT_AVX512)
constexpr int VECTOR_BYTES = 64;
#elif defined(AOT_AVX2)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
#if defined(AOT_AVX512) || defined(AOT_AVX2) || defined(__ARM_FEATURE_FMA)
constexpr bool FAST_FMA = true;
#else
constexpr bool FAST_FMA = false;
#endif

typedef float Floats128 __attribute__((vector_size(16)));
typedef float Floats256 __attribute__((vector_size(32)));
typedef float Floats512 __attribute__((vector_size(64)));
typedef double Doubles256 __attribute__((vector_size(32)));
typedef double Doubles512 __attribute__((vector_size(64)));
typedef int32_t Ints128 __attribute__((vector_size(16)));
typedef int32_t Ints256 __attribute__((vector_size(32)));
typedef int32_t Ints512 __attribute__((vector_size(64)));
typedef long long Longs512 __attribute__((vector_size(64)));
typedef uint16_t Halves128 __attribute__((vector_size(16)));
typedef uint16_t Halves256 __attribute__((vector_size(32)));
typedef short Shorts128 __attribute__((vector_size(16)));
typedef short Shorts256 __attribute__((vector_size(32)));

#if defined(__clang__) && defined(__x86_64__)

#if defined(__SSE2__)
AOT_INLINE bool any_128(Ints128 m) { return _mm_movemask_ps((__m128)m) != 0; }
#endif
#if defined(AOT_AVX512) || defined(AOT_AVX2)
AOT_INLINE bool any_256(Ints256 m) { return _mm256_movemask_ps((__m256)m) != 0; }
AOT_INLINE Floats128 multiply_add_128(Floats128 a, Floats128 b, Floats128 c) { return (Floats128)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c); }
AOT_INLINE Floats256 multiply_add_256(Floats256 a, Floats256 b, Floats256 c) { return (Floats256)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
AOT_INLINE Floats256 square_root_256(Floats256 a) { return (Floats256)_mm256_sqrt_ps((__m256)a); }
AOT_INLINE Doubles256 square_root_256(Doubles256 a) { return (Doubles256)_mm256_sqrt_pd((__m256d)a); }
#if defined(__F16C__)
AOT_INLINE Floats256 float_of_half_256(Halves128 a) { return (Floats256)_mm256_cvtph_ps((__m128i)a); }
AOT_INLINE Halves128 half_of_float_256(Floats256 a) { return (Halves128)_mm256_cvtps_ph((__m256)a, 0); }
#endif
#endif
#if defined(AOT_AVX512)
AOT_INLINE bool any_512(Ints512 m) { return _mm512_movepi32_mask((__m512i)m) != 0; }
AOT_INLINE Floats512 multiply_add_512(Floats512 a, Floats512 b, Floats512 c) { return (Floats512)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
AOT_INLINE Floats512 scale_512(Floats512 a, Floats512 n) { return (Floats512)_mm512_scalef_ps((__m512)a, (__m512)n); }
AOT_INLINE Floats512 square_root_512(Floats512 a) { return (Floats512)_mm512_sqrt_ps((__m512)a); }
AOT_INLINE Doubles512 square_root_512(Doubles512 a) { return (Doubles512)_mm512_sqrt_pd((__m512d)a); }
AOT_INLINE Floats512 float_of_half_512(Halves256 a) { return (Floats512)_mm512_cvtph_ps((__m256i)a); }
AOT_INLINE Halves256 half_of_float_512(Floats512 a) { return (Halves256)_mm512_cvtps_ph((__m512)a, 0); }
AOT_INLINE Ints512 load_first_32(const void *p, int n) { return (Ints512)_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p); }
AOT_INLINE Longs512 load_first_64(const void *p, int n) { return (Longs512)_mm512_maskz_loadu_epi64((__mmask8)((1u << n) - 1), p); }
AOT_INLINE void store_first_32(void *p, Ints512 v, int n) { _mm512_mask_storeu_epi32(p, (__mmask16)((1u << n) - 1), (__m512i)v); }
AOT_INLINE void store_first_64(void *p, Longs512 v, int n) { _mm512_mask_storeu_epi64(p, (__mmask8)((1u << n) - 1), (__m512i)v); }
#endif

#elif defined(__x86_64__)

#if defined(__SSE2__)
AOT_INLINE bool any_128(Ints128 m) { return __builtin_ia32_movmskps((Floats128)m) != 0; }
#endif
#if defined(AOT_AVX512) || defined(AOT_AVX2)
AOT_INLINE bool any_256(Ints256 m) { return __builtin_ia32_movmskps256((Floats256)m) != 0; }
AOT_INLINE Floats128 multiply_add_128(Floats128 a, Floats128 b, Floats128 c) { return __builtin_ia32_vfmaddps(a, b, c); }
AOT_INLINE Floats256 multiply_add_256(Floats256 a, Floats256 b, Floats256 c) { return __builtin_ia32_vfmaddps256(a, b, c); }
AOT_INLINE Floats256 square_root_256(Floats256 a) { return __builtin_ia32_sqrtps256(a); }
AOT_INLINE Doubles256 square_root_256(Doubles256 a) { return __builtin_ia32_sqrtpd256(a); }
#if defined(__F16C__)
AOT_INLINE Floats256 float_of_half_256(Halves128 a) { return __builtin_ia32_vcvtph2ps256((Shorts128)a); }
AOT_INLINE Halves128 half_of_float_256(Floats256 a) { return (Halves128)__builtin_ia32_vcvtps2ph256(a, 0); }
#endif
#endif
#if defined(AOT_AVX512)
// the last argument 4 is "current rounding direction", -1 the mask of all elements
AOT_INLINE bool any_512(Ints512 m) { return __builtin_ia32_cvtd2mask512(m) != 0; }
AOT_INLINE Floats512 multiply_add_512(Floats512 a, Floats512 b, Floats512 c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4); }
AOT_INLINE Floats512 scale_512(Floats512 a, Floats512 n) { return __builtin_ia32_scalefps512_mask(a, n, a, (uint16_t)-1, 4); }
AOT_INLINE Floats512 square_root_512(Floats512 a) { return __builtin_ia32_sqrtps512_mask(a, a, (uint16_t)-1, 4); }
AOT_INLINE Doubles512 square_root_512(Doubles512 a) { return __builtin_ia32_sqrtpd512_mask(a, a, (uint8_t)-1, 4); }
AOT_INLINE Floats512 float_of_half_512(Halves256 a) { return __builtin_ia32_vcvtph2ps512_mask((Shorts256)a, Floats512{}, (uint16_t)-1, 4); }
AOT_INLINE Halves256 half_of_float_512(Floats512 a) { return (Halves256)__builtin_ia32_vcvtps2ph512_mask(a, 0, Shorts256{}, (uint16_t)-1); }
AOT_INLINE Ints512 load_first_32(const void *p, int n) {
  return (Ints512)__builtin_ia32_loaddqusi512_mask((const int *)p, Ints512{}, (uint16_t)((1u << n) - 1));
}
AOT_INLINE Longs512 load_first_64(const void *p, int n) {
  return (Longs512)__builtin_ia32_loaddqudi512_mask((const long long *)p, Longs512{}, (uint8_t)((1u << n) - 1));
}
AOT_INLINE void store_first_32(void *p, Ints512 v, int n) { __builtin_ia32_storedqusi512_mask((int *)p, v, (uint16_t)((1u << n) - 1)); }
AOT_INLINE void store_first_64(void *p, Longs512 v, int n) { __builtin_ia32_storedqudi512_mask((long long *)p, v, (uint8_t)((1u << n) - 1)); }
#endif

#endif

}  // namespace aotcompile
