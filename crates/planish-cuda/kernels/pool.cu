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
//   PACKED     1: the largest of 16-bit numbers or bytes, a word of them at once (V of them are 16 bytes)
//   THREADS    of a block

// An axis of a small window: where it begins, which of its taps lie in the image, and how many of them do with and
// without the padding.
template <int K> struct Axis {
  int start, inside, padded;
  u32 flags;
  PL_INLINE Axis(const WindowAxis& p, int out) {
    start = out * p.stride - p.pad_begin;
    inside = padded = 0;
    flags = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
      const int at = start + k * p.dilation;
      const bool there = at >= 0 && at < p.input;
      flags |= there ? 1u << k : 0u;
      inside += there ? 1 : 0;
      padded += at < p.input + p.pad_end ? 1 : 0;
    }
  }
  PL_INLINE bool at(int k) const { return (flags >> k & 1) != 0; }
};

template <bool WIDE> PL_INLINE void make(const T* x, T* y, const PoolArgs& a) {
  int at[4], n;
  if (!po_thread<THREADS>(a.threads, at, n)) return;
  const int c = LAST ? at[0] * V : at[3], left = a.channels - c;
  const int out[3] = {at[LAST + 2], at[LAST + 1], at[LAST]};
  const int step_d = a.windows[0].dilation * a.x.d, step_h = a.windows[1].dilation * a.x.h, step_w = a.windows[2].dilation * a.x.w;
  T* to = y + (n * a.y.n + c * a.y.c + out[0] * a.y.d + out[1] * a.y.h + out[2] * a.y.w);
  float sum[V];
#pragma unroll
  for (int j = 0; j < V; j++) sum[j] = IS_MAX ? __int_as_float(0xff800000) : 0.0f;
#if KD > 0
  // Which taps lie in the image is asked of each: dividing would take longer.
  const Axis<KD> depths(a.windows[0], out[0]);
  const Axis<KH> rows(a.windows[1], out[1]);
  const Axis<KW> columns(a.windows[2], out[2]);
#if !IS_MAX
  const int counted = WITH_PAD ? depths.padded * rows.padded * columns.padded : depths.inside * rows.inside * columns.inside;
#endif
  const T* from = x + (n * a.x.n + c * a.x.c + depths.start * a.x.d + rows.start * a.x.h + columns.start * a.x.w);
#if PACKED
  if (WIDE) {
    Largest<T> best[4];
#pragma unroll
    for (int j = 0; j < 4; j++) best[j].clear();
#pragma unroll DEPTHS
    for (int d = 0; d < KD; d++) {
      uint4 v[KH][KW];
#pragma unroll
      for (int h = 0; h < KH; h++) {
#pragma unroll
        for (int w = 0; w < KW; w++) {
          v[h][w] = make_uint4(Largest<T>::LEAST, Largest<T>::LEAST, Largest<T>::LEAST, Largest<T>::LEAST);
          if (depths.at(d) && rows.at(h) && columns.at(w)) v[h][w] = *(const uint4*)(from + d * step_d + h * step_h + w * step_w);
        }
      }
#pragma unroll
      for (int h = 0; h < KH; h++) {
#pragma unroll
        for (int w = 0; w < KW; w++) {
          best[0].take(v[h][w].x);
          best[1].take(v[h][w].y);
          best[2].take(v[h][w].z);
          best[3].take(v[h][w].w);
        }
      }
    }
    union { uint4 all; T each[V]; } u;
    u.all = make_uint4(best[0].get(), best[1].get(), best[2].get(), best[3].get());
    if (((u64)to & 15) == 0) {
      *(uint4*)to = u.all;
    } else {
#pragma unroll
      for (int j = 0; j < V; j++) to[j] = u.each[j];
    }
    return;
  }
#endif
#pragma unroll DEPTHS
  for (int d = 0; d < KD; d++) {
    T v[KH][KW][V];
#pragma unroll
    for (int h = 0; h < KH; h++) {
#pragma unroll
      for (int w = 0; w < KW; w++) {
        const bool there = depths.at(d) && rows.at(h) && columns.at(w);
        po_fetch<T, V, WIDE>(v[h][w], from + d * step_d + h * step_h + w * step_w, there, left);
      }
    }
#pragma unroll
    for (int h = 0; h < KH; h++) {
#pragma unroll
      for (int w = 0; w < KW; w++) {
        const bool there = depths.at(d) && rows.at(h) && columns.at(w);
#pragma unroll
        for (int j = 0; j < V; j++) {
          const float e = po_widen(v[h][w][j]);
          if (there) sum[j] = IS_MAX ? pl_max(sum[j], e) : sum[j] + e;
        }
      }
    }
  }
#else
  int first[3], taps[3];
#if WITH_PAD
  int counted = 1;
#endif
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const WindowAxis& p = a.windows[i];
    const int start = out[i] * p.stride - p.pad_begin;
    const int k0 = start < 0 ? (-start + p.dilation - 1) / p.dilation : 0;
    const int room = p.input - start;
    const int k1 = room <= 0 ? 0 : min(p.kernel, (room + p.dilation - 1) / p.dilation);
    taps[i] = max(k1 - k0, 0);
    first[i] = start + k0 * p.dilation;
#if WITH_PAD
    counted *= min(p.kernel, max(0, (room + p.pad_end + p.dilation - 1) / p.dilation));
#endif
  }
#if !WITH_PAD && !IS_MAX
  const int counted = taps[0] * taps[1] * taps[2];
#endif
  const T* from = x + (n * a.x.n + c * a.x.c + first[0] * a.x.d + first[1] * a.x.h + first[2] * a.x.w);
  for (int d = 0; d < taps[0]; d++) {
    for (int h = 0; h < taps[1]; h++) {
      const T* row = from + d * step_d + h * step_h;
      for (int w = 0; w < taps[2]; w++, row += step_w) {
        typename Wide<T>::type v[V];
        po_load_part<T, V>(v, row, left, (typename Wide<T>::type)0);
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] = IS_MAX ? pl_max(sum[j], (float)v[j]) : sum[j] + (float)v[j];
      }
    }
  }
#endif
#if !IS_MAX
  const float share = 1.0f / (float)max(counted, 1);
#pragma unroll
  for (int j = 0; j < V; j++) sum[j] = counted > 1 ? sum[j] * share : sum[j];
#endif
  typename Wide<T>::type made[V];
#pragma unroll
  for (int j = 0; j < V; j++) made[j] = (typename Wide<T>::type)sum[j];
  po_store_part<T, V>(to, made, left);
}

extern "C" __global__ void __launch_bounds__(THREADS) pool(const T* x, T* y, const PoolArgs a) {
  let_next_begin();
  wait_for_inputs();
  const int strides = a.channels | a.x.n | a.x.d | a.x.h | a.x.w;
  if (LAST && strides % V == 0 && (u64)x % (V * sizeof(T)) == 0) make<true>(x, y, a);
  else make<V == 1>(x, y, a);
}
