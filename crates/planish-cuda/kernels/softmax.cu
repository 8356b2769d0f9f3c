// Softmax and its logarithm along one axis.
//
// Set from outside:
//   T U       what is read and written is stored in
//   IS_LOG    1: the logarithm, by two subtractions: the largest and the sum's logarithm together would be rounded at
//             the size of the largest
//   ALONG     1: neighbours of a line are neighbours in memory, and THREADS share a line;
//             0: a thread has a line, neighbours have neighbouring lines
//   THREADS   32 or 256
//   HELD      elements that each thread holds in registers, a multiple of V; 0: lines are read twice
//   V         elements at once
//   N_OUT     axes of the lines

extern "C" __global__ void __launch_bounds__(256) softmax(const T* x, U* y, const LineArgs a) {
  let_next_begin();
  wait_for_inputs();
  const int len = a.len;
#if ALONG
  const u32 line = blockIdx.x * (256u / THREADS) + threadIdx.x / THREADS;
#else
  const u32 line = blockIdx.x * 256u + threadIdx.x;
#endif
  const bool there = line < (u32)a.n_lines;
  u32 rest = there ? line : 0;
  int from = 0, to = 0;
#pragma unroll
  for (int i = 0; i < N_OUT; i++) {
    const int at = po_take(rest, a.axes[i]);
    from += at * a.x_strides[i];
    to += at * a.y_strides[i];
  }
  const float lowest = __int_as_float(0xff800000);
#if ALONG
  __shared__ float scratch[16];
  const int t = threadIdx.x % THREADS;
  const T* row = x + from;
  U* into = y + to;
#if HELD
  float held[HELD];
  float most = lowest;
#pragma unroll
  for (int i = 0; i < HELD / V; i++) {
    float v[V];
    const int at = (i * THREADS + t) * V;
    po_load_part<T, V>(v, row + at, there ? len - at : 0, lowest);
#pragma unroll
    for (int j = 0; j < V; j++) { held[i * V + j] = v[j]; most = pl_max(most, v[j]); }
  }
  // NaN must come through: a maximum of two numbers would drop it, but the sum does not.
  most = po_block_max<THREADS>(most, scratch);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < HELD; i++) {
    const int at = ((i / V) * THREADS + t) * V + i % V;
    const float e = at < len ? expf(held[i] - most) : 0.0f;
    if (!IS_LOG) held[i] = e;
    sum += e;
  }
  sum = po_block_sum<THREADS>(sum, scratch);
  const float share = IS_LOG ? logf(sum) : 1.0f / sum;
  if (!there) return;
#pragma unroll
  for (int i = 0; i < HELD / V; i++) {
    float v[V];
    const int at = (i * THREADS + t) * V;
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = IS_LOG ? (held[i * V + j] - most) - share : held[i * V + j] * share;
    if (at < len) po_store_part<U, V>(into + at, v, len - at);
  }
#else
  float most = lowest;
  for (int at = t * V; there && at < len; at += THREADS * V) {
    float v[V];
    po_load_part<T, V>(v, row + at, len - at, lowest);
#pragma unroll
    for (int j = 0; j < V; j++) most = pl_max(most, v[j]);
  }
  most = po_block_max<THREADS>(most, scratch);
  float sum = 0.0f;
  for (int at = t * V; there && at < len; at += THREADS * V) {
    float v[V];
    po_load_part<T, V>(v, row + at, len - at, lowest);
#pragma unroll
    for (int j = 0; j < V; j++) sum += j < len - at ? expf(v[j] - most) : 0.0f;
  }
  sum = po_block_sum<THREADS>(sum, scratch);
  const float share = IS_LOG ? logf(sum) : 1.0f / sum;
  for (int at = t * V; there && at < len; at += THREADS * V) {
    float v[V];
    po_load_part<T, V>(v, row + at, len - at, lowest);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = IS_LOG ? (v[j] - most) - share : expf(v[j] - most) * share;
    po_store_part<U, V>(into + at, v, len - at);
  }
#endif
#else
  if (!there) return;
  const int step = a.x_step, step_to = a.y_step;
  float most = lowest;
  for (int i = 0; i < len; i++) most = pl_max(most, po_widen(x[from + i * step]));
  float sum = 0.0f;
  for (int i = 0; i < len; i++) sum += expf(po_widen(x[from + i * step]) - most);
  const float share = IS_LOG ? logf(sum) : 1.0f / sum;
  for (int i = 0; i < len; i++) {
    const float v = po_widen(x[from + i * step]);
    y[to + i * step_to] = Narrow<U>::make(IS_LOG ? (v - most) - share : expf(v - most) * share);
  }
#endif
}
