// Attention on tensor cores: a warp has 16 queries, a block goes over the keys 64 at a time. Scores stay in
// registers; sums are rescaled whenever a larger score appears.
//
// Set from outside (attention.cuh stands in front):
//   T             f16 or bf16: storage of queries, keys, values and output
//   D DV          features of queries and keys, and of values, rounded up to 16
//   WARPS         of a block
//   WIDE          1: operands' rows lie in whole chunks of 16 bytes; 0: anywhere

#define KEYS 64
// Groups of 16 features whose values are loaded together: two, or one where they are not even in number.
#define AHEAD (DV / 16 % 2 == 0 ? 2 : 1)
#define PITCH (D + 8)
#define PITCH_V (DV + 8)

extern "C" __global__ void __launch_bounds__(THREADS)
attention(const T* q, const T* k, const T* v, const MASK_T* mask, T* y, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  PO_DYNAMIC
  T* keys = (T*)po_dynamic;
  T* values = keys + KEYS * PITCH;
  T* queries_at = values + KEYS * PITCH_V;
  const int block = blockIdx.x, head = blockIdx.y, batch = blockIdx.z;
  const int kv = head / a.v[1];
  const int n_queries = a.v[2], n_keys = a.v[3];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int first = block * 16 * WARPS;
  q += (i64)batch * a.v[4] + (i64)head * a.v[5];
  k += (i64)batch * a.v[7] + (i64)kv * a.v[8];
  v += (i64)batch * a.v[10] + (i64)kv * a.v[11];
  y += (i64)batch * a.v[13] + (i64)head * a.v[14];
  Scorer scorer;
  scorer.start(a, mask, batch, head);
  const int row = first + warp * 16 + lane / 4;  // and row + 8

#if CAUSAL
  const int last = min(n_keys, first + 16 * WARPS);
#else
  const int last = n_keys;
#endif
  bring<D, 16 * WARPS, PITCH>(queries_at, q + (i64)first * a.v[6], a.v[6], n_queries - first, a.v[24]);
  bring<D, KEYS, PITCH>(keys, k, a.v[9], n_keys, a.v[24]);
  bring<DV, KEYS, PITCH_V>(values, v, a.v[12], n_keys, a.v[25]);
  u32 queries[D / 16][4];
  copy_async_wait<2>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
    load_matrix4(queries[i], shared_address(queries_at + (warp * 16 + lane % 16) * PITCH + i * 16 + lane / 16 * 8));
  }

  float sums[DV / 8][4];
#pragma unroll
  for (int i = 0; i < DV / 8; i++) { sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.0f; }
  const float hidden = __int_as_float(0xff800000);
  float most[2] = {hidden, hidden}, total[2] = {0.0f, 0.0f};

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
    if (next < last) bring<D, KEYS, PITCH>(keys, k + (i64)next * a.v[9], a.v[9], n_keys - next, a.v[24]);
    else copy_async_commit();

    float top[2] = {most[0], most[1]};
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int key = start + i * 8 + lane % 4 * 2 + e % 2;
        s[i][e] = scorer.of(s[i][e], row + e / 2 * 8, key);
        top[e / 2] = fmaxf(top[e / 2], s[i][e]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
      // As long as everything is hidden there is nothing to take away from the scores.
      const float base = top[h] == hidden ? 0.0f : top[h];
      const float kept = exp2f(most[h] - base);
      most[h] = top[h];
      total[h] *= kept;
#pragma unroll
      for (int i = 0; i < DV / 8; i++) { sums[i][2 * h] *= kept; sums[i][2 * h + 1] *= kept; }
#pragma unroll
      for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++) {
          s[i][e] = exp2f(s[i][e] - base);
          total[h] += s[i][e];
        }
      }
    }
    copy_async_wait<1>();
    __syncthreads();
    // The same with values: AHEAD groups of 16 features at a time.
    u32 f[2][AHEAD][4];
    const int row_v = lane % 16, col_v = lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < AHEAD; n++)
      load_matrix4_transposed(f[0][n], shared_address(values + row_v * PITCH_V + n * 16 + col_v));
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
      const u32 weights[4] = {
          Pair<T>::pack(s[2 * i][0], s[2 * i][1]), Pair<T>::pack(s[2 * i][2], s[2 * i][3]),
          Pair<T>::pack(s[2 * i + 1][0], s[2 * i + 1][1]), Pair<T>::pack(s[2 * i + 1][2], s[2 * i + 1][3])};
#pragma unroll
      for (int g = 0; g < DV / 16; g += AHEAD) {
        const int now = (i * (DV / 16) + g) / AHEAD, then = now + 1;
        if (then < KEYS / 16 * (DV / 16) / AHEAD) {
          const int i2 = then * AHEAD / (DV / 16), g2 = then * AHEAD % (DV / 16);
#pragma unroll
          for (int n = 0; n < AHEAD; n++)
            load_matrix4_transposed(f[then % 2][n],
                                    shared_address(values + (i2 * 16 + row_v) * PITCH_V + (g2 + n) * 16 + col_v));
        }
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
          multiply<T>(sums[2 * (g + n)], weights, f[now % 2][n][0], f[now % 2][n][1]);
          multiply<T>(sums[2 * (g + n) + 1], weights, f[now % 2][n][2], f[now % 2][n][3]);
        }
      }
    }
    __syncthreads();
    if (next < last) bring<DV, KEYS, PITCH_V>(values, v + (i64)next * a.v[12], a.v[12], n_keys - next, a.v[25]);
    else copy_async_commit();
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
    total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
    const int at = row + 8 * h;
    if (at >= n_queries) continue;
    T* to = y + (i64)at * a.v[15];
#pragma unroll
    for (int i = 0; i < DV / 8; i++) {
      const int col = i * 8 + lane % 4 * 2;
      const float lo = sums[i][2 * h] / total[h], hi = sums[i][2 * h + 1] / total[h];
      if (WIDE && ((u64)to & 3) == 0) {
        if (col < a.v[25]) *(u32*)(to + col) = Pair<T>::pack(lo, hi);
      } else {
        if (col < a.v[25]) to[col] = from_f32<T>(lo);
        if (col + 1 < a.v[25]) to[col + 1] = from_f32<T>(hi);
      }
    }
  }
}
