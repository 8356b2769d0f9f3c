// Attention on the plain units, in f32 throughout: a block has 32 queries and goes over the keys 32 at a time.
//
// Set from outside (attention.cuh stands in front):
//   T      storage of queries, keys, values and output
//   D DV   features of queries and keys, and of values, rounded up to 8

#define ROWS 32
#define KEYS 32
#define EACH (DV / 8)

extern "C" __global__ void __launch_bounds__(256)
attention(const T* q, const T* k, const T* v, const MASK_T* mask, Y_T* y, const AttentionArgs a) {
  let_next_begin();
  wait_for_inputs();
  PO_DYNAMIC
  float* queries = (float*)po_dynamic;
  float* keys = queries + ROWS * (D + 1);
  float* values = keys + KEYS * (D + 1);
  float* scores = values + KEYS * (DV + 1);
  const int head = blockIdx.y, batch = blockIdx.z;
  const int n_queries = a.n_queries, n_keys = a.n_keys;
  const int first = blockIdx.x * ROWS;
  const Scorer scorer = at_head(a, batch, head, q, k, v, y, mask);
  for (int i = threadIdx.x; i < ROWS * D; i += 256) {
    const int row = i / D, col = i % D;
    const bool there = first + row < n_queries && col < a.size;
    queries[row * (D + 1) + col] = there ? po_widen(q[(i64)(first + row) * a.queries.step + col]) : 0.0f;
  }
  // Eight threads share a query.
  const int own = threadIdx.x / 8, part = threadIdx.x % 8;
  float sums[EACH], most = HIDDEN, total = 0.0f;
#pragma unroll
  for (int i = 0; i < EACH; i++) sums[i] = 0.0f;
#if CAUSAL
  const int last = min(n_keys, first + ROWS);
#else
  const int last = n_keys;
#endif
  for (int start = 0; start < last; start += KEYS) {
    __syncthreads();
    for (int i = threadIdx.x; i < KEYS * D; i += 256) {
      const int row = i / D, col = i % D;
      const bool there = start + row < n_keys && col < a.size;
      keys[row * (D + 1) + col] = there ? po_widen(k[(i64)(start + row) * a.keys.step + col]) : 0.0f;
    }
    for (int i = threadIdx.x; i < KEYS * DV; i += 256) {
      const int row = i / DV, col = i % DV;
      const bool there = start + row < n_keys && col < a.value_size;
      values[row * (DV + 1) + col] = there ? po_widen(v[(i64)(start + row) * a.values.step + col]) : 0.0f;
    }
    __syncthreads();
    float s[KEYS / 8], top = most;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
      const int key = i * 8 + part;
      float product = 0.0f;
#pragma unroll 8
      for (int f = 0; f < D; f++) product += queries[own * (D + 1) + f] * keys[key * (D + 1) + f];
      s[i] = scorer.of(product, first + own, start + key);
      top = fmaxf(top, s[i]);
    }
#pragma unroll
    for (int step = 1; step < 8; step <<= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    const float base = base_of(top);
    const float kept = exp2f(most - base);
    most = top;
    total *= kept;
#pragma unroll
    for (int i = 0; i < EACH; i++) sums[i] *= kept;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
      const float weight = exp2f(s[i] - base);
      total += weight;
      scores[own * (KEYS + 1) + i * 8 + part] = weight;
    }
    __syncthreads();
    for (int key = 0; key < KEYS; key++) {
      const float weight = scores[own * (KEYS + 1) + key];
#pragma unroll
      for (int i = 0; i < EACH; i++) sums[i] += weight * values[key * (DV + 1) + i * 8 + part];
    }
  }
#pragma unroll
  for (int step = 1; step < 8; step <<= 1) total += __shfl_xor_sync(0xffffffffu, total, step);
  if (first + own >= n_queries) return;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int col = i * 8 + part;
    if (col < a.value_size) y[(i64)(first + own) * a.out.step + col] = Narrow<T>::make(sums[i] / total);
  }
}
