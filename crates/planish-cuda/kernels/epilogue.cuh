// What follows each sum of a product: bias, residual, bounds, a generated program, and the store; and how accumulators that lie
// over four neighbouring lanes become eight neighbours of a row.
//
// Set from outside:
//   View TileEpilogueArgs      what a launch says of operands and bounds (see epilogue.rs)
//   BIAS_T RES_T OUT_T   storage types
//   N_EXTRA          further inputs of the program after the accumulators; AFTER is 1 where there is a program, whose
//                    text follows the kernel's shared part
//   EXTRA_ARGUMENTS EXTRA_NAMES   their addresses, as parameters and as values
//   CONSTANT_BIAS    1: the bias is `constant_bias`, part of the text
//   EPILOGUE_BIAS      1: there is a bias
//   EPILOGUE_RESIDUAL  0: no residual, 1: before the clamp, 2: after it

PL_INLINE bool aligned16(const void* at) { return ((u64)at & 15u) == 0; }

// The addresses of one launch.
struct Addresses {
  void* out;
  const void* bias;
  const void* residual;
  const void* extra[N_EXTRA ? N_EXTRA : 1];
};

// What kernels take after their factors, and the addresses in it. `parts` is the workspace.
#define EPILOGUE_ARGUMENTS \
  const void *bias, const void *residual, EXTRA_ARGUMENTS void *out, float *parts
#if CONSTANT_BIAS
#define EPILOGUE_ADDRESSES {out, constant_bias, residual, {EXTRA_NAMES}}
#else
#define EPILOGUE_ADDRESSES {out, bias, residual, {EXTRA_NAMES}}
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
template <> struct Plain<u8> { typedef bool type; static PL_INLINE bool read(u8 v) { return v != 0; } };

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
    load8<T>(v, base, view, at, n, count);
  }
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
#pragma unroll
  for (int j = 0; j < 8; j++) {
    v[j] = v[j] < f.lo ? f.lo : v[j];
    v[j] = v[j] > f.hi ? f.hi : v[j];
  }
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
  if (EPILOGUE_BIAS) {
    float b[8];
    load8_float<BIAS_T>(b, a.bias, f.bias, at, n, count);
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] += b[j];
  }
  float r[8];
  if (EPILOGUE_RESIDUAL) load8_float<RES_T>(r, a.residual, f.residual, at, n, count);
  between8(f, a, v, r, at, n, count);
  OUT_T* to = (OUT_T*)a.out + view_row<OUT_T>(f.out, at) + (i64)n * f.out.c;
  if (f.out.wide && count == 8 && aligned16(a.out)) {
    Eight<OUT_T>::store(to, v);
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++)
      if (j < count) to[(i64)j * f.out.c] = from_f32<OUT_T>(v[j]);
  }
}

// Four neighbouring lanes hold two columns of each of four blocks of eight; afterwards each holds one block.
PL_INLINE void transpose_quad(float (&x)[4][2], u32 lane) {
  bool odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int e = 0; e < 2; e++) {
#pragma unroll
    for (int b = 0; b < 4; b += 2) {
      float send = odd ? x[b][e] : x[b + 1][e];
      float got = __shfl_xor_sync(~0u, send, 1);
      if (odd) x[b][e] = got;
      else x[b + 1][e] = got;
    }
#pragma unroll
    for (int b = 0; b < 2; b++) {
      float send = high ? x[b][e] : x[b + 2][e];
      float got = __shfl_xor_sync(~0u, send, 2);
      if (high) x[b][e] = got;
      else x[b + 2][e] = got;
    }
  }
}

// The same from a lane's pairs of the four blocks: the eight neighbours that are its own then.
PL_INLINE void eight_of_quad(float (&v)[8], float (&x)[4][2], u32 lane) {
  transpose_quad(x, lane);
#pragma unroll
  for (int b = 0; b < 4; b++) v[2 * b] = x[b][0], v[2 * b + 1] = x[b][1];
}
