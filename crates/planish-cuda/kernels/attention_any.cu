// Attention of any size and with everything that it may have, in f32 throughout: a block has one query and up to
// 512 features of its result. Written to be right and in its place on the device, not to be fast.
//
// Set from outside (attention.cuh stands in front):
//   T          storage of queries, keys, values and output
//   HAS_PAST   1: steps of the past come before the new ones
//   HAS_LENGTHS  1: each batch says how many of its keys count
//   SCORES     -1: none are wanted; 0 to 3: the scores of this stage

#define THREADS 128
#define FEATURES 512

extern "C" __global__ void __launch_bounds__(THREADS)
attention(const T* q, const T* k, const T* v, const MASK_T* mask, Y_T* y, const T* past_k, const T* past_v,
          const i64* lengths, T* kept, const AttentionArgs a) {
  let_next_begin();
  wait_for_inputs();
  __shared__ float scores[THREADS];
  __shared__ float scratch[THREADS / 32];
  const int n_queries = a.n_queries, n_keys = a.n_keys, past = a.n_past;
  u32 rest = blockIdx.x;
  const int chunk = (int)(rest % (u32)a.n_chunks);
  rest /= (u32)a.n_chunks;
  const int query = (int)(rest % (u32)n_queries);
  rest /= (u32)n_queries;
  const int head = (int)(rest % (u32)a.n_heads), batch = (int)(rest / (u32)a.n_heads);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Scorer scorer = at_head(a, batch, head, q, k, v, y, mask);
  q += (i64)query * a.queries.step;
  y += (i64)query * a.out.step;
#if HAS_PAST
  past_k += head_at(a.past_keys, batch, head / a.sharers);
  past_v += head_at(a.past_values, batch, head / a.sharers);
#endif
#if SCORES >= 0
  kept += head_at(a.scores, batch, head) + (i64)query * a.scores.step;
#endif
#if HAS_LENGTHS
  scorer.n_keys = (int)min((i64)n_keys, max((i64)0, lengths[batch]));
#endif
  float sums[FEATURES / THREADS], most = HIDDEN, total = 0.0f;
#pragma unroll
  for (int i = 0; i < FEATURES / THREADS; i++) sums[i] = 0.0f;
  // The stage after the softmax is known when all keys were seen: scores are made once more.
  for (int round = 0; round < (SCORES == 3 && chunk == 0 ? 2 : 1); round++) {
    for (int start = 0; start < n_keys; start += THREADS) {
      __syncthreads();
      for (int i = 0; i < 32; i++) {
        const int key = start + warp * 32 + i;
        float product = 0.0f;
        if (key < n_keys) {
#if HAS_PAST
          const T* from = key < past ? past_k + (i64)key * a.past_keys.step : k + (i64)(key - past) * a.keys.step;
#else
          const T* from = k + (i64)key * a.keys.step;
#endif
          for (int f = lane; f < a.size; f += 32) product += po_widen(q[f]) * po_widen(from[f]);
        }
        product = warp_sum(product);
        if (lane == 0) scores[warp * 32 + i] = product;
      }
      __syncthreads();
      const int own = start + (int)threadIdx.x;
      const float product = scores[threadIdx.x];
      const float score = scorer.of(product, query, own);
      if (round == 1) {
#if SCORES == 3
        const float base = base_of(most);
        if (own < n_keys) kept[own] = Narrow<T>::make(exp2f(score - base) / total);
#endif
        continue;
      }
#if SCORES >= 0 && SCORES < 3
      if (chunk == 0 && own < n_keys) {
        float stage = product * scorer.scale;
#if SCORES >= 1 && HAS_CAP
        stage = scorer.cap * tanhf(stage / scorer.cap);
#endif
#if SCORES == 2
        stage = score * 0.6931471805599453f;
#endif
        kept[own] = Narrow<T>::make(stage);
      }
#endif
      const float top = fmaxf(most, po_block_max<THREADS>(score, scratch));
      const float base = base_of(top);
      const float factor = exp2f(most - base), weight = exp2f(score - base);
      most = top;
      total = total * factor + po_block_sum<THREADS>(weight, scratch);
      scores[threadIdx.x] = weight;
      __syncthreads();
      const int n = min(THREADS, n_keys - start);
#pragma unroll
      for (int i = 0; i < FEATURES / THREADS; i++) {
        const int feature = chunk * FEATURES + i * THREADS + (int)threadIdx.x;
        if (feature >= a.value_size) continue;
        float sum = sums[i] * factor;
        for (int j = 0; j < n; j++) {
          const int key = start + j;
#if HAS_PAST
          const T* from = key < past ? past_v + (i64)key * a.past_values.step : v + (i64)(key - past) * a.values.step;
#else
          const T* from = v + (i64)key * a.values.step;
#endif
          sum += scores[j] * po_widen(from[feature]);
        }
        sums[i] = sum;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < FEATURES / THREADS; i++) {
    const int feature = chunk * FEATURES + i * THREADS + (int)threadIdx.x;
    // Without keys there is nothing to take a mean of, and nothing is what comes out.
    if (feature < a.value_size) y[feature] = Narrow<T>::make(n_keys == 0 ? 0.0f : sums[i] / total);
  }
}
