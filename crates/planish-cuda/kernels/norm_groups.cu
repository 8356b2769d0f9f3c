// Group and instance normalization: channels of a group and all their pixels by one mean and deviation.
//
// Set from outside:
//   X_T S_T B_T Y_T   storage of input, scale, bias and output
//   STAGE     0: all of a group by one block; 1: sums of a part of a group; 2: a part of a group from the sums
//   THREADS   of a block
//   V         elements at once, along channels or pixels
//   LAST      1: channels are innermost; 0: pixels are
//   HELD      more than 0: all vectors of a group, so many a thread, stay in registers (STAGE 0)
//   CLUSTER   blocks that share a group and add up their sums (HELD)
//   EPILOGUE… the program after (see epilogue.rs)
//
// Sums are taken of what is above or below the group's first element, so that a mean of many deviations costs
// no digits, and parts can simply be added up.

struct Sums { float off, squares; };

// The first channel of the group and the first pixel of a vector.
struct Spot { int c, pixel; };
PL_INLINE Spot spot_of(const NormGroupsArgs& a, int i) {
  const int outer = (int)po_div_by((u32)i, a.inner);
  const int inner = (i - outer * (int)a.inner.d) * V;
  Spot spot = {LAST ? inner : outer, LAST ? outer : inner};
  return spot;
}

#if STAGE == 0 && HELD > 0
template <bool WIDE> PL_INLINE void make(const X_T* x, const S_T* scale, const B_T* bias, Y_T* y, const NormGroupsArgs& a EPILOGUE_PARAMS) {
  __shared__ float2 scratch[THREADS / 32];
  const int which = blockIdx.y;
  const int n = which / a.n_groups, group = which - n * a.n_groups;
  const int c0 = group * a.per_group;
  const X_T* from = x + (i64)n * a.x.sample + (i64)c0 * a.x.channel;
  const float first = po_widen(from[0]);
  const float count = (float)a.per_group * (float)a.n_pixels;
  const int begin = CLUSTER > 1 ? (int)blockIdx.x * (HELD * THREADS) + (int)threadIdx.x : (int)threadIdx.x;
  X_T v[HELD][V];
  int c[HELD], pixel[HELD];
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    const int i = begin + h * THREADS;
    const Spot spot = spot_of(a, i);
    c[h] = spot.c;
    pixel[h] = spot.pixel;
    po_fetch<X_T, V, WIDE>(v[h], from + ((i64)c[h] * a.x.channel + (i64)pixel[h] * a.x.pixel), i < a.n_vectors, V);
  }
  float off = 0.0f, squares = 0.0f;
#pragma unroll
  for (int h = 0; h < HELD; h++) {
#pragma unroll
    for (int j = 0; j < V; j++) {
      const float d = begin + h * THREADS < a.n_vectors ? po_widen(v[h][j]) - first : 0.0f;
      off += d;
      squares += d * d;
    }
  }
  float2 sums;
  sums.x = warp_sum(off);
  sums.y = warp_sum(squares);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = sums;
  __syncthreads();
  off = squares = 0.0f;
#pragma unroll
  for (int i = 0; i < THREADS / 32; i++) {
    off += scratch[i].x;
    squares += scratch[i].y;
  }
#if CLUSTER > 1
  __shared__ float4 shown;
  if (threadIdx.x == 0) shown = make_float4(off, squares, 0.0f, 0.0f);
  cluster_sync();
  off = squares = 0.0f;
#pragma unroll
  for (int r = 0; r < CLUSTER; r++) {
    const float4 other = load_cluster16(cluster_address(shared_address(&shown), r));
    off += other.x;
    squares += other.y;
  }
  cluster_leave();
#endif
  const float mean_off = off / count;
  const float variance = fmaxf(squares / count - mean_off * mean_off, 0.0f);
  const float factor = 1.0f / sqrtf(variance + a.epsilon);
  const float mean = first + mean_off;
  Y_T* to = y + (i64)n * a.y.sample + (i64)c0 * a.y.channel;
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    if (begin + h * THREADS >= a.n_vectors) break;
    float e[V];
#if LAST
    float s[V], b[V];
    po_load<S_T, V>(s, scale + c0 + c[h]);
    po_load<B_T, V>(b, bias + c0 + c[h]);
#pragma unroll
    for (int j = 0; j < V; j++) e[j] = (po_widen(v[h][j]) - mean) * factor * s[j] + b[j];
    epilogue(e, a.epilogue, n, 0, 0, pixel[h], c0 + c[h], V EPILOGUE_ARGS);
#else
    const float s = po_widen(scale[c0 + c[h]]) * factor, b = po_widen(bias[c0 + c[h]]);
#pragma unroll
    for (int j = 0; j < V; j++) e[j] = (po_widen(v[h][j]) - mean) * s + b;
    epilogue(e, a.epilogue, n, c0 + c[h], 0, 0, pixel[h], V EPILOGUE_ARGS);
#endif
    po_store<Y_T, V>(to + ((i64)c[h] * a.y.channel + (i64)pixel[h] * a.y.pixel), e);
  }
#if CLUSTER > 1
  cluster_left();
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
norm_groups(const X_T* x, const S_T* scale, const B_T* bias, Y_T* y, Sums* parts, const NormGroupsArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  // Where the operand begins only the launch knows, and of clusters alone strides are any.
  const bool wide = (a.x.sample | (LAST ? a.x.pixel : a.x.channel)) % V == 0 && (u64)x % (V * sizeof(X_T)) == 0;
  if (wide) make<true>(x, scale, bias, y, a EPILOGUE_ARGS);
  else make<false>(x, scale, bias, y, a EPILOGUE_ARGS);
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
norm_groups(const X_T* x, const S_T* scale, const B_T* bias, Y_T* y, Sums* parts, const NormGroupsArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  __shared__ float scratch[THREADS / 32];
  const int which = blockIdx.y;
  const int n = which / a.n_groups, group = which - n * a.n_groups;
  const int c0 = group * a.per_group;
  const X_T* from = x + (i64)n * a.x.sample + (i64)c0 * a.x.channel;
  const int begin = STAGE == 0 ? 0 : (int)blockIdx.x * a.per_part;
  const int end = STAGE == 0 ? a.n_vectors : min(begin + a.per_part, a.n_vectors);
  const float first = po_widen(from[0]);
  const float count = (float)a.per_group * (float)a.n_pixels;
  float off = 0.0f, squares = 0.0f;
#if STAGE != 2
#pragma unroll 2
  for (int i = begin + threadIdx.x; i < end; i += THREADS) {
    const Spot spot = spot_of(a, i);
    const int c = spot.c, pixel = spot.pixel;
    float v[V];
    po_load<X_T, V>(v, from + ((i64)c * a.x.channel + (i64)pixel * a.x.pixel));
#pragma unroll
    for (int j = 0; j < V; j++) {
      const float d = v[j] - first;
      off += d;
      squares += d * d;
    }
  }
  off = po_block_sum<THREADS>(off, scratch);
  squares = po_block_sum<THREADS>(squares, scratch);
#else
  // At most 32 parts: a lane has one.
  const int lane = threadIdx.x & 31;
  if (lane < a.n_parts) {
    const Sums part = parts[(i64)which * a.n_parts + lane];
    off = part.off;
    squares = part.squares;
  }
  off = warp_sum(off);
  squares = warp_sum(squares);
#endif
#if STAGE == 1
  if (threadIdx.x == 0) {
    Sums part = {off, squares};
    parts[(i64)which * a.n_parts + blockIdx.x] = part;
  }
#else
  const float mean_off = off / count;
  const float variance = fmaxf(squares / count - mean_off * mean_off, 0.0f);
  const float factor = 1.0f / sqrtf(variance + a.epsilon);
  const float mean = first + mean_off;
  Y_T* to = y + (i64)n * a.y.sample + (i64)c0 * a.y.channel;
  for (int i = begin + threadIdx.x; i < end; i += THREADS) {
    const Spot spot = spot_of(a, i);
    const int c = spot.c, pixel = spot.pixel;
    float v[V];
    po_load<X_T, V>(v, from + ((i64)c * a.x.channel + (i64)pixel * a.x.pixel));
#if LAST
    float s[V], b[V];
    po_load<S_T, V>(s, scale + c0 + c);
    po_load<B_T, V>(b, bias + c0 + c);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = (v[j] - mean) * factor * s[j] + b[j];
    epilogue(v, a.epilogue, n, 0, 0, pixel, c0 + c, V EPILOGUE_ARGS);
#else
    const float s = po_widen(scale[c0 + c]) * factor, b = po_widen(bias[c0 + c]);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = (v[j] - mean) * s + b;
    epilogue(v, a.epilogue, n, c0 + c, 0, 0, pixel, V EPILOGUE_ARGS);
#endif
    po_store<Y_T, V>(to + ((i64)c * a.y.channel + (i64)pixel * a.y.pixel), v);
  }
#endif
}
#endif
