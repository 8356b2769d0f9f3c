// Attention on tensor cores: a warp has 16 queries, a block goes over the keys 64 at a time. Scores stay in
// registers; sums are rescaled whenever a larger score appears.
//
// Set from outside (attention.cuh stands in front):
//   T             f16 or bf16: storage of queries, keys, values and output
//   D DV          features of queries and keys, and of values, rounded up to 16
//   WARPS         of a block
//   WIDE          1: operands' rows lie in whole chunks of 16 bytes; 0: anywhere

#define KEYS 64
#define PITCH (D + 8)
#define PITCH_V (DV + 8)

extern "C" __global__ void __launch_bounds__(THREADS)
attention(const T* q, const T* k, const T* v, const MASK_T* mask, Y_T* y, const AttentionArgs a) {
  let_next_begin();
  wait_for_inputs();
  PO_DYNAMIC
  T* keys = (T*)po_dynamic;
  T* values = keys + KEYS * PITCH;
  T* queries_at = values + KEYS * PITCH_V;
  const int block = blockIdx.x, head = blockIdx.y, batch = blockIdx.z;
  const int n_queries = a.n_queries, n_keys = a.n_keys;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int first = block * 16 * WARPS;
  const Scorer scorer = at_head(a, batch, head, q, k, v, y, mask);
  const int row = first + warp * 16 + lane / 4;  // and row + 8

#if CAUSAL
  const int last = min(n_keys, first + 16 * WARPS);
#else
  const int last = n_keys;
#endif
  bring<D, 16 * WARPS, PITCH>(queries_at, q + (i64)first * a.queries.step, a.queries.step, n_queries - first, a.size);
  bring<D, KEYS, PITCH>(keys, k, a.keys.step, n_keys, a.size);
  bring<DV, KEYS, PITCH_V>(values, v, a.values.step, n_keys, a.value_size);
  u32 queries[D / 16][4];
  copy_async_wait<2>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
    load_matrix4(queries[i], shared_address(queries_at + (warp * 16 + lane % 16) * PITCH + i * 16 + lane / 16 * 8));
  }

  Running<DV> running;
  running.clear();

  for (int start = 0; start < last; start += KEYS) {
    // Of this thread's copies only the values' may still be under way.
    copy_async_wait<1>();
    __syncthreads();
    float s[KEYS / 8][4];
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) { s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f; }
    // Fragments are loaded one step ahead of the products that take them.
    u32 b[2][KEYS / 16][4];
    const int key = lane / 16 * 8 + lane % 8, feature = lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) load_matrix4(b[0][n], shared_address(keys + (n * 16 + key) * PITCH + feature));
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      if (i + 1 < D / 16) {
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++)
          load_matrix4(b[(i + 1) % 2][n], shared_address(keys + (n * 16 + key) * PITCH + (i + 1) * 16 + feature));
      }
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        multiply<T>(s[2 * n], queries[i], b[i % 2][n][0], b[i % 2][n][1]);
        multiply<T>(s[2 * n + 1], queries[i], b[i % 2][n][2], b[i % 2][n][3]);
      }
    }
    __syncthreads();
    const int next = start + KEYS;
    if (next < last) bring<D, KEYS, PITCH>(keys, k + (i64)next * a.keys.step, a.keys.step, n_keys - next, a.size);
    else copy_async_commit();

#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[i][e] = scorer.of(s[i][e], row + e / 2 * 8, start + i * 8 + lane % 4 * 2 + e % 2);
    }
    running.weigh(s, [](float v) { return exp2f(v); });
    copy_async_wait<1>();
    __syncthreads();
    running.add<PITCH_V>(s, values, lane);
    __syncthreads();
    if (next < last) bring<DV, KEYS, PITCH_V>(values, v + (i64)next * a.values.step, a.values.step, n_keys - next, a.value_size);
    else copy_async_commit();
  }
  running.close();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int at = row + 8 * h;
    if (at >= n_queries) continue;
    Y_T* to = y + (i64)at * a.out.step;
#pragma unroll
    for (int i = 0; i < DV / 8; i++) {
      const int col = i * 8 + lane % 4 * 2;
      const float lo = running.sums[i][2 * h] / running.total[h], hi = running.sums[i][2 * h + 1] / running.total[h];
#if HAS_BYTES
      union { Y_T each[2]; u16 both; } u;
      u.each[0] = stored(lo, a), u.each[1] = stored(hi, a);
      if (WIDE && ((u64)to & 1) == 0) {
        if (col < a.value_size) *(u16*)(to + col) = u.both;
      } else {
        if (col < a.value_size) to[col] = u.each[0];
        if (col + 1 < a.value_size) to[col + 1] = u.each[1];
      }
#else
      if (WIDE && ((u64)to & 3) == 0) {
        if (col < a.value_size) *(u32*)(to + col) = Pair<T>::pack(lo, hi);
      } else {
        if (col < a.value_size) to[col] = from_f32<T>(lo);
        if (col + 1 < a.value_size) to[col + 1] = from_f32<T>(hi);
      }
#endif
    }
  }
}
