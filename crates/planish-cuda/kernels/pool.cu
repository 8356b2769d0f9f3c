// Pooling: the largest or the average element under each window, in any strides.
//
// Set from outside:
//   T          what elements are stored in
//   V          neighbouring channels of a thread; 1 unless channels are innermost
//   IS_MAX     1: the largest (NaN wins), 0: the average
//   WITH_PAD   padding counts for the average, as zeros
//   LAST       1: channels are innermost and threads follow them; 0: columns are
//   KD KH KW   taps of a window that is small, whose elements are loaded together; KD 0: of any window
//   DEPTHS     planes of taps that are loaded together
//   THREADS    of a block
//
// Integers: 0 the number of threads; from 1 on the divisors of the threads' axes, innermost first (with LAST
// vectors of channels, columns, rows, depths; else columns, rows, depths, channels); from 13 on the channels,
// then for depth, row and column each: input, kernel, stride, dilation, padding before, padding behind; from
// 32 on the strides of sample, channel, depth, row and column, of the input and from 37 of the output.
template <bool WIDE> PL_INLINE void make(const T* x, T* y, const Ints& a) {
  u32 rest = blockIdx.x * (u32)THREADS + threadIdx.x;
  if (rest >= (u32)a.v[0]) return;
  int at[4];
#pragma unroll
  for (int i = 0; i < 4; i++) at[i] = po_take(rest, a.v[1 + 3 * i], a.v[2 + 3 * i], a.v[3 + 3 * i]);
#if LAST
  const int c = at[0] * V;
  const int out[3] = {at[3], at[2], at[1]};
#else
  const int c = at[3];
  const int out[3] = {at[2], at[1], at[0]};
#endif
  const int n = (int)rest;
  int first[3], taps[3];
#if WITH_PAD
  int counted = 1;
#endif
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int* p = a.v + 14 + 6 * i;
    const int start = out[i] * p[2] - p[4];
    const int k0 = start < 0 ? (-start + p[3] - 1) / p[3] : 0;
    const int room = p[0] - start;
    const int k1 = room <= 0 ? 0 : min(p[1], (room + p[3] - 1) / p[3]);
    taps[i] = max(k1 - k0, 0);
    first[i] = start + k0 * p[3];
#if WITH_PAD
    counted *= min(p[1], max(0, (room + p[5] + p[3] - 1) / p[3]));
#endif
  }
#if !WITH_PAD && !IS_MAX
  const int counted = taps[0] * taps[1] * taps[2];
#endif
  const int left = a.v[13] - c;
  const T* from = x + (n * a.v[32] + c * a.v[33] + first[0] * a.v[34] + first[1] * a.v[35] + first[2] * a.v[36]);
  const int step_d = a.v[14 + 3] * a.v[34], step_h = a.v[20 + 3] * a.v[35], step_w = a.v[26 + 3] * a.v[36];
  float sum[V];
#pragma unroll
  for (int j = 0; j < V; j++) sum[j] = IS_MAX ? __int_as_float(0xff800000) : 0.0f;
#if KD > 0
#pragma unroll DEPTHS
  for (int d = 0; d < KD; d++) {
    T v[KH][KW][V];
#pragma unroll
    for (int h = 0; h < KH; h++) {
#pragma unroll
      for (int w = 0; w < KW; w++) {
        const bool there = d < taps[0] && h < taps[1] && w < taps[2];
        po_fetch<T, V, WIDE>(v[h][w], from + d * step_d + h * step_h + w * step_w, there, left);
      }
    }
#pragma unroll
    for (int h = 0; h < KH; h++) {
#pragma unroll
      for (int w = 0; w < KW; w++) {
        const bool there = d < taps[0] && h < taps[1] && w < taps[2];
#pragma unroll
        for (int j = 0; j < V; j++) {
          const float e = po_widen(v[h][w][j]);
          if (there) sum[j] = IS_MAX ? pl_max(sum[j], e) : sum[j] + e;
        }
      }
    }
  }
#else
  for (int d = 0; d < taps[0]; d++) {
    for (int h = 0; h < taps[1]; h++) {
      const T* row = from + d * step_d + h * step_h;
      for (int w = 0; w < taps[2]; w++, row += step_w) {
        float v[V];
        po_load_part<T, V>(v, row, left, 0.0f);
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] = IS_MAX ? pl_max(sum[j], v[j]) : sum[j] + v[j];
      }
    }
  }
#endif
#if !IS_MAX
  const float share = 1.0f / (float)max(counted, 1);
#pragma unroll
  for (int j = 0; j < V; j++) sum[j] = counted > 1 ? sum[j] * share : sum[j];
#endif
  T* to = y + (n * a.v[37] + c * a.v[38] + out[0] * a.v[39] + out[1] * a.v[40] + out[2] * a.v[41]);
  po_store_part<T, V>(to, sum, left);
}

extern "C" __global__ void __launch_bounds__(THREADS) pool(const T* x, T* y, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  const int strides = a.v[13] | a.v[32] | a.v[34] | a.v[35] | a.v[36];
  if (LAST && strides % V == 0 && (u64)x % (V * sizeof(T)) == 0) make<true>(x, y, a);
  else make<V == 1>(x, y, a);
}
