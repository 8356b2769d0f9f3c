// What follows each sum of a product: scales, bias, residual, bounds, a generated program, rounding to 8 bits, and the
// store; and how accumulators that lie over four neighbouring lanes become eight neighbours of a row.
//
// Set from outside:
//   View TileEpilogueArgs      what a launch says of operands and bounds (see epilogue.rs)
//   BIAS_T RES_T OUT_T   storage types
//   N_EXTRA          further inputs of the program after the accumulators; AFTER is 1 where there is a program, whose
//                    text follows the kernel's shared part
//   EXTRA_ARGUMENTS EXTRA_NAMES   their addresses, as parameters and as values
//   CONSTANT_BIAS    1: the bias is `constant_bias`, part of the text
//   EPILOGUE_BIAS      1: there is a bias
//   EPILOGUE_BOUNDS    1: there are bounds
//   EPILOGUE_RESIDUAL  0: no residual, 1: before the clamp, 2: after it
//   EPILOGUE_SCALE     what sums of integers are multiplied by: 0: nothing, 1: one number, 2: one of each column
//   RES_BYTES RES_ZERO   1: the residual is of bytes with this zero point
//   OUT_BYTES OUT_LEAST OUT_MOST OUT_ZERO   1: results are rounded to bytes of this range with this zero point
//   OUT_F8             1: these bytes are floats (e4m3)
//   IN_STEPS           1: bytes that come right after bias, residual and bounds: all of these are counted in steps of the
//                      output from the beginning, so that a result needs no more than to be rounded

PL_INLINE bool aligned16(const void* at) { return ((u64)at & 15u) == 0; }

// The addresses of one launch.
struct Addresses {
  void* out;
  const void* scales;
  const void* bias;
  const void* residual;
  const void* extra[N_EXTRA ? N_EXTRA : 1];
};

// What kernels take after their factors, and the addresses in it. `parts` is the workspace.
#define EPILOGUE_ARGUMENTS \
  const void *scales, const void *bias, const void *residual, EXTRA_ARGUMENTS void *out, float *parts
#if CONSTANT_BIAS
#define EPILOGUE_ADDRESSES {out, scales, constant_bias, residual, {EXTRA_NAMES}}
#else
#define EPILOGUE_ADDRESSES {out, scales, bias, residual, {EXTRA_NAMES}}
#endif

// The place of a row, for views that are not linear: set by whoever knows what rows are.
struct Place { int m; int q[4]; };

template <class T> PL_INLINE i64 view_row(const View& v, const Place& at) {
  if (v.linear) return (i64)at.m * v.s[3];
  return (i64)at.q[0] * v.s[0] + (i64)at.q[1] * v.s[1] + (i64)at.q[2] * v.s[2] + (i64)at.q[3] * v.s[3];
}

template <class T> struct Plain { typedef T type; static PL_INLINE T read(T v) { return v; } };
template <> struct Plain<f16> { typedef float type; static PL_INLINE float read(f16 v) { return to_f32(v); } };
template <> struct Plain<bf16> { typedef float type; static PL_INLINE float read(bf16 v) { return to_f32(v); } };
template <> struct Plain<b8> { typedef bool type; static PL_INLINE bool read(b8 v) { return v.byte != 0; } };

// Bytes are numbers of a program as they are, and floats where floats are asked for.
template <class T> PL_INLINE void load8(typename Plain<T>::type (&v)[8], const void* base, const View& view,
                                            const Place& at, int n, int count) {
  const T* from = (const T*)base + view_row<T>(view, at) + (i64)n * view.c;
  if (view.c == 0) {
    typename Plain<T>::type one = Plain<T>::read(*from);
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = one;
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = j < count ? Plain<T>::read(from[(i64)j * view.c]) : (typename Plain<T>::type)0;
  }
}
// As above for floats, at once where they are aligned.
template <class T> PL_INLINE void load8_float(float (&v)[8], const void* base, const View& view, const Place& at, int n,
                                                  int count) {
  if (view.wide && count == 8 && aligned16(base)) {
    Eight<T>::load(v, (const T*)base + view_row<T>(view, at) + n);
  } else {
    typename Plain<T>::type each[8];
    load8<T>(each, base, view, at, n, count);
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = to_f32(each[j]);
  }
}

// Residuals that were read as they are stored.
PL_INLINE void finish_residual(const TileEpilogueArgs& f, float (&r)[8]) {
#if RES_BYTES && !IN_STEPS
#pragma unroll
  for (int j = 0; j < 8; j++) r[j] = (r[j] - (float)(RES_ZERO)) * f.residual_scale;
#endif
}

#if IN_STEPS
// Bias, residual and bounds in steps of the output.
PL_INLINE void count_steps(const TileEpilogueArgs& f, float (&v)[8], const float (&scale)[8], const float (&bias)[8],
                           const float (&residual)[8]) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    v[j] = fmaf(v[j], scale[j], bias[j]);
#if EPILOGUE_RESIDUAL
    v[j] = fmaf(RES_BYTES ? residual[j] - (float)(RES_ZERO) : residual[j], f.residual_scale, v[j]);
#endif
#if OUT_F8
    // NaN stays.
    v[j] = v[j] < f.lo ? f.lo : v[j] > f.hi ? f.hi : v[j];
#else
    v[j] = fminf(fmaxf(v[j], f.lo), f.hi);
#endif
  }
}
#endif

#if OUT_BYTES && !OUT_F8
// The byte of a result, the lowest of the word. Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves
// it in the low bits. NaN becomes the lowest number.
PL_INLINE u32 rounded_to_byte(const TileEpilogueArgs& f, float v) {
#if IN_STEPS
  const float t = v;
#else
  const float t = fminf(fmaxf(v * f.inverse, (float)((OUT_LEAST) - (OUT_ZERO))), (float)((OUT_MOST) - (OUT_ZERO)));
#endif
  return __float_as_uint(t + 12582912.0f) + (u32)(OUT_ZERO);
}
#endif

// A result as it is stored.
PL_INLINE OUT_T stored(const TileEpilogueArgs& f, float v) {
#if OUT_F8
  return from_f32<OUT_T>(IN_STEPS ? v : v * f.inverse);
#elif OUT_BYTES
  return (OUT_T)rounded_to_byte(f, v);
#else
  return from_f32<OUT_T>(v);
#endif
}

#if OUT_BYTES
// Eight of them as they lie in memory.
PL_INLINE uint2 eight_bytes(const TileEpilogueArgs& f, const float (&v)[8]) {
#if OUT_F8
  float t[8];
#pragma unroll
  for (int i = 0; i < 8; i++) t[i] = IN_STEPS ? v[i] : v[i] * f.inverse;
  return e4m3_eight(t);
#else
  u32 w[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    u32 b[4];
#pragma unroll
    for (int j = 0; j < 4; j++) b[j] = rounded_to_byte(f, v[4 * i + j]);
    w[i] = __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
  }
  return make_uint2(w[0], w[1]);
#endif
}
#endif

// Eight of them at an aligned place.
PL_INLINE void store8(const TileEpilogueArgs& f, OUT_T* to, const float (&v)[8]) {
#if OUT_BYTES
  *(uint2*)to = eight_bytes(f, v);
#else
  Eight<OUT_T>::store(to, v);
#endif
}

#if AFTER
PL_INLINE void after(const TileEpilogueArgs& f, const Addresses& a, const Place& at, int n, int count, float (&v)[8]);
#endif

// What stands between a sum with its bias and the store: the residual, the bounds, the program.
PL_INLINE void between8(const TileEpilogueArgs& f, const Addresses& a, float (&v)[8], const float (&residual)[8], const Place& at,
                        int n, int count) {
  if (EPILOGUE_RESIDUAL == 1) {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] += residual[j];
  }
#if EPILOGUE_BOUNDS
#pragma unroll
  for (int j = 0; j < 8; j++) {
    v[j] = v[j] < f.lo ? f.lo : v[j];
    v[j] = v[j] > f.hi ? f.hi : v[j];
  }
#endif
  if (EPILOGUE_RESIDUAL == 2) {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] += residual[j];
  }
#if AFTER
  after(f, a, at, n, count, v);
#endif
}

// Eight neighbouring accumulators of a row, of which `count` exist, with all that follows them.
PL_INLINE void epilogue8(const TileEpilogueArgs& f, const Addresses& a, float (&v)[8], const Place& at, int n, int count) {
  float s[8], b[8], r[8];
#if EPILOGUE_SCALE == 2
  load8_float<float>(s, a.scales, f.scales, at, n, count);
#endif
#pragma unroll
  for (int j = 0; j < 8; j++) s[j] = EPILOGUE_SCALE == 2 ? s[j] * f.factor : f.factor;
  if (EPILOGUE_BIAS) load8_float<BIAS_T>(b, a.bias, f.bias, at, n, count);
  if (EPILOGUE_RESIDUAL) {
    load8_float<RES_T>(r, a.residual, f.residual, at, n, count);
    finish_residual(f, r);
  }
#if IN_STEPS
#pragma unroll
  for (int j = 0; j < 8; j++) b[j] = EPILOGUE_BIAS ? b[j] * f.inverse : 0.0f;
  count_steps(f, v, s, b, r);
#else
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (EPILOGUE_SCALE) v[j] *= s[j];
    if (EPILOGUE_BIAS) v[j] += b[j];
  }
  between8(f, a, v, r, at, n, count);
#endif
  OUT_T* to = (OUT_T*)a.out + view_row<OUT_T>(f.out, at) + (i64)n * f.out.c;
  if (f.out.wide && count == 8 && aligned16(a.out)) {
    store8(f, to, v);
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++)
      if (j < count) to[(i64)j * f.out.c] = stored(f, v[j]);
  }
}

// Four neighbouring lanes hold two columns of each of four blocks of eight; afterwards each holds one block.
template <class T> PL_INLINE void transpose_quad(T (&x)[4][2], u32 lane) {
  bool odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int e = 0; e < 2; e++) {
#pragma unroll
    for (int b = 0; b < 4; b += 2) {
      T send = odd ? x[b][e] : x[b + 1][e];
      T got = __shfl_xor_sync(~0u, send, 1);
      if (odd) x[b][e] = got;
      else x[b + 1][e] = got;
    }
#pragma unroll
    for (int b = 0; b < 2; b++) {
      T send = high ? x[b][e] : x[b + 2][e];
      T got = __shfl_xor_sync(~0u, send, 2);
      if (high) x[b][e] = got;
      else x[b + 2][e] = got;
    }
  }
}

// The same from a lane's pairs of the four blocks: the eight neighbours that are its own then.
template <class T> PL_INLINE void eight_of_quad(T (&v)[8], T (&x)[4][2], u32 lane) {
  transpose_quad(x, lane);
#pragma unroll
  for (int b = 0; b < 4; b++) v[2 * b] = x[b][0], v[2 * b + 1] = x[b][1];
}
