// Attention on tensor cores for many features: the warps of a block share its queries. Of a step's scores each
// warp makes 16 keys' over a part of the features; of the sums each has every eighth group of 16 features.
//
// Set from outside (attention.cuh stands in front):
//   T          f16 or bf16: storage of queries, keys, values and output
//   D DV       features of queries and keys, and of values, rounded up to 16
//   KEYS       of a step: 16, 32 or 64
//   TILES      of 16 queries, 1 or 2
//   WIDE       1: operands' rows lie in whole chunks of 16 bytes; 0: anywhere
//   SPLIT      1: a block has a part of the keys and leaves its sums in `parts`; 0: all of them

#define WARPS 8
#define PITCH (D + 8)
#define PITCH_V (DV + 8)
#define ROWS (16 * TILES)
#define KEY_GROUPS (KEYS / 16)
#define DEPTH_PARTS (WARPS / KEY_GROUPS)
#define DEPTH_STEPS ((D / 16 + DEPTH_PARTS - 1) / DEPTH_PARTS)
#define PITCH_S (KEYS + 8)
#define SHARERS (256 / ROWS)
#define EACH (KEYS / SHARERS)
#define GROUPS ((DV / 16 + WARPS - 1) / WARPS)

extern "C" __global__ void __launch_bounds__(256)
attention(const T* q, const T* k, const T* v, const MASK_T* mask, Y_T* y, float* parts, const AttentionArgs a) {
  let_next_begin();
  wait_for_inputs();
  PO_DYNAMIC
  T* queries = (T*)po_dynamic;
  T* keys = queries + ROWS * PITCH;
  T* values = keys + KEYS * PITCH;
  T* weights = values + KEYS * PITCH_V;
  float* scores = (float*)(weights + ROWS * PITCH_S);
  float* kept = scores + DEPTH_PARTS * ROWS * PITCH_S;
  float* totals = kept + ROWS;
  const int n_parts = a.n_parts;
  const int block = blockIdx.x / n_parts, split = blockIdx.x % n_parts;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int n_queries = a.n_queries, n_keys = a.n_keys;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int first = block * ROWS;
  const Scorer scorer = at_head(a, batch, head, q, k, v, y, mask);

  const int begin = split * a.part_keys;
  int end = min(n_keys, begin + a.part_keys);
#if CAUSAL
  end = min(end, first + ROWS);
#endif
  float sums[TILES][GROUPS][2][4];
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
      for (int e = 0; e < 8; e++) sums[m][g][e / 4][e % 4] = 0.0f;
  // Of the threads that share a row, each knows its greatest score and a part of its total.
  const int own = threadIdx.x / SHARERS, share = threadIdx.x % SHARERS;
  float most = HIDDEN, total = 0.0f;

  bring<D, ROWS, PITCH>(queries, q + (i64)first * a.queries.step, a.queries.step, n_queries - first, a.size);
  if (begin < end) {
    bring<D, KEYS, PITCH>(keys, k + (i64)begin * a.keys.step, a.keys.step, n_keys - begin, a.size);
    bring<DV, KEYS, PITCH_V>(values, v + (i64)begin * a.values.step, a.values.step, n_keys - begin, a.value_size);
  }
  for (int start = begin; start < end; start += KEYS) {
    // Of this thread's copies only the values' may still be under way.
    copy_async_wait<1>();
    __syncthreads();
    const int key_group = warp % KEY_GROUPS, part = warp / KEY_GROUPS;
    float s[TILES][2][4];
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
      for (int e = 0; e < 8; e++) s[m][e / 4][e % 4] = 0.0f;
    // Fragments are loaded one step ahead of the products that take them.
    u32 b[2][4], from[2][TILES][4];
    const T* key_at = keys + (key_group * 16 + lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
    const T* query_at = queries + lane % 16 * PITCH + lane / 16 * 8;
    if (part < D / 16) {
      load_matrix4(b[0], shared_address(key_at + part * 16));
#pragma unroll
      for (int m = 0; m < TILES; m++) load_matrix4(from[0][m], shared_address(query_at + m * 16 * PITCH + part * 16));
    }
#pragma unroll
    for (int j = 0; j < DEPTH_STEPS; j++) {
      const int i = part + j * DEPTH_PARTS, then = i + DEPTH_PARTS;
      if (then < D / 16) {
        load_matrix4(b[(j + 1) % 2], shared_address(key_at + then * 16));
#pragma unroll
        for (int m = 0; m < TILES; m++)
          load_matrix4(from[(j + 1) % 2][m], shared_address(query_at + m * 16 * PITCH + then * 16));
      }
      if (i < D / 16) {
#pragma unroll
        for (int m = 0; m < TILES; m++) {
          multiply<T>(s[m][0], from[j % 2][m], b[j % 2][0], b[j % 2][1]);
          multiply<T>(s[m][1], from[j % 2][m], b[j % 2][2], b[j % 2][3]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const int row = m * 16 + lane / 4 + e / 2 % 2 * 8, key = key_group * 16 + e / 4 * 8 + lane % 4 * 2 + e % 2;
        scores[(part * ROWS + row) * PITCH_S + key] = s[m][e / 4][e % 4];
      }
    }
    __syncthreads();
    const int next = start + KEYS;
    if (next < end) bring<D, KEYS, PITCH>(keys, k + (i64)next * a.keys.step, a.keys.step, n_keys - next, a.size);
    else copy_async_commit();

    float own_scores[EACH], top = most;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int key = i * SHARERS + share;
      float product = 0.0f;
#pragma unroll
      for (int p = 0; p < DEPTH_PARTS; p++) product += scores[(p * ROWS + own) * PITCH_S + key];
      own_scores[i] = scorer.of(product, first + own, start + key);
      top = fmaxf(top, own_scores[i]);
    }
#pragma unroll
    for (int step = 1; step < SHARERS; step <<= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    const float base = base_of(top);
    const float factor = exp2f(most - base);
    most = top;
    total *= factor;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const float weight = exp2f(own_scores[i] - base);
      total += weight;
      weights[own * PITCH_S + i * SHARERS + share] = from_f32<T>(weight);
    }
    if (share == 0) kept[own] = factor;
    copy_async_wait<1>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < TILES; m++) {
      const float low = kept[m * 16 + lane / 4], high = kept[m * 16 + lane / 4 + 8];
#pragma unroll
      for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int e = 0; e < 8; e++) sums[m][g][e / 4][e % 4] *= e % 4 < 2 ? low : high;
    }
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
      u32 w[TILES][4], f[GROUPS][4];
#pragma unroll
      for (int m = 0; m < TILES; m++)
        load_matrix4(w[m], shared_address(weights + (m * 16 + lane % 16) * PITCH_S + i * 16 + lane / 16 * 8));
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        // A group that is not there is not stored either: any will do.
        const int group = min(g * WARPS + warp, DV / 16 - 1);
        load_matrix4_transposed(f[g], shared_address(values + (i * 16 + lane % 16) * PITCH_V + group * 16 + lane / 16 * 8));
      }
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
#pragma unroll
        for (int m = 0; m < TILES; m++) {
          multiply<T>(sums[m][g][0], w[m], f[g][0], f[g][1]);
          multiply<T>(sums[m][g][1], w[m], f[g][2], f[g][3]);
        }
      }
    }
    __syncthreads();
    if (next < end) bring<DV, KEYS, PITCH_V>(values, v + (i64)next * a.values.step, a.values.step, n_keys - next, a.value_size);
    else copy_async_commit();
  }
#pragma unroll
  for (int step = 1; step < SHARERS; step <<= 1) total += __shfl_xor_sync(0xffffffffu, total, step);
#if SPLIT
  // After the sums of all parts: what is the greatest score of a row, and its total.
  const i64 n_rows = (i64)gridDim.z * a.n_heads * n_queries;
  const i64 row0 = ((i64)batch * a.n_heads + head) * n_queries + first;
  if (share == 0 && first + own < n_queries) {
    float* to = parts + n_rows * n_parts * DV + ((i64)split * n_rows + row0 + own) * 2;
    to[0] = most;
    to[1] = total;
  }
#else
  if (share == 0) totals[own] = total;
  __syncthreads();
#endif
#pragma unroll
  for (int m = 0; m < TILES; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = m * 16 + lane / 4 + 8 * h;
      if (first + row >= n_queries) continue;
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        const int group = g * WARPS + warp;
        if (group >= DV / 16) break;
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int col = group * 16 + half * 8 + lane % 4 * 2;
          const float lo = sums[m][g][half][2 * h], hi = sums[m][g][half][2 * h + 1];
#if SPLIT
          float* to = parts + ((i64)split * n_rows + row0 + row) * DV + col;
          to[0] = lo;
          to[1] = hi;
#else
          Y_T* to = y + (i64)(first + row) * a.out.step + col;
          if (col < a.value_size) to[0] = from_f32<T>(lo / totals[row]);
          if (col + 1 < a.value_size) to[1] = from_f32<T>(hi / totals[row]);
#endif
        }
      }
    }
  }
}
