// Layer and RMS normalization of rows, with a sum before and a program after.
//
// Set from outside:
//   X_T R_T S_T B_T Y_T   storage of the input, what is added to it, scale, bias and output
//   HAS_SUM HAS_BIAS IS_RMS
//   HAS_FLOATS  1: results are stored as Y_T
//   HAS_BYTES Q_T ZERO   1: they are, after rounding to Y_T, quantized to numbers of 8 bits with this zero point
//   SHARERS   threads that share a row: 32, or all of a block
//   ROWS      rows of a block, 1 unless SHARERS is 32
//   HELD      elements that each thread holds in registers, a multiple of V; 0: rows are read again
//   V         elements at once
//   N_OUT     axes of the rows, at most 4
//   EPILOGUE… the program after (see epilogue.rs)

PL_INLINE void read_row(float (&v)[V], const X_T* x, const R_T* r, int at, int left) {
  po_load_part<X_T, V>(v, x + at, left, 0.0f);
#if HAS_SUM
  float more[V];
  po_load_part<R_T, V>(more, r + at, left, 0.0f);
#pragma unroll
  for (int j = 0; j < V; j++) v[j] += more[j];
#endif
}

extern "C" __global__ void __launch_bounds__(SHARERS * ROWS)
norm_rows(const X_T* x, const R_T* r, const S_T* scale, const B_T* bias, Y_T* y, Q_T* q, const NormRowsArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  __shared__ float scratch[SHARERS / 32];
  const u32 row = blockIdx.x * (u32)ROWS + threadIdx.x / SHARERS;
  const bool there = row < (u32)a.n_rows;
  const int t = threadIdx.x % SHARERS;
  const int len = a.len;
  int place[4] = {0, 0, 0, 0};
  u32 rest = there ? row : 0;
#pragma unroll
  for (int i = 0; i < N_OUT; i++) {
    const int at = po_take(rest, a.axes[i]);
    place[N_OUT - 1 - i] = at;
    x += (i64)at * a.x_strides[i];
    r += (i64)at * a.added_strides[i];
    y += (i64)at * a.y_strides[i];
    q += (i64)at * a.q_strides[i];
  }
  const float share = 1.0f / (float)len;
  const float epsilon = a.epsilon;
  const int end = there ? len : 0;
#if HELD
  float held[HELD];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < HELD / V; i++) {
    const int at = (i * SHARERS + t) * V;
    float v[V];
    read_row(v, x, r, at, end - at);
#pragma unroll
    for (int j = 0; j < V; j++) { held[i * V + j] = v[j]; sum += v[j]; }
  }
  const float mean = IS_RMS ? 0.0f : po_block_sum<SHARERS>(sum, scratch) * share;
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < HELD; i++) {
    const int at = ((i / V) * SHARERS + t) * V + i % V;
    const float d = held[i] - mean;
    squares += at < end ? d * d : 0.0f;
  }
#else
  float sum = 0.0f;
  for (int at = t * V; at < end; at += SHARERS * V) {
    float v[V];
    read_row(v, x, r, at, end - at);
#pragma unroll
    for (int j = 0; j < V; j++) sum += v[j];
  }
  const float mean = IS_RMS ? 0.0f : po_block_sum<SHARERS>(sum, scratch) * share;
  float squares = 0.0f;
  for (int at = t * V; at < end; at += SHARERS * V) {
    float v[V];
    read_row(v, x, r, at, end - at);
#pragma unroll
    for (int j = 0; j < V; j++) squares += at + j < end ? (v[j] - mean) * (v[j] - mean) : 0.0f;
  }
#endif
  const float factor = 1.0f / sqrtf(po_block_sum<SHARERS>(squares, scratch) * share + epsilon);
#if HELD
#pragma unroll
  for (int i = 0; i < HELD / V; i++) {
    const int at = (i * SHARERS + t) * V;
#else
  for (int at = t * V; at < end; at += SHARERS * V) {
#endif
    if (at >= end) break;
    float v[V], s[V];
#if HELD
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = held[i * V + j];
#else
    read_row(v, x, r, at, end - at);
#endif
    po_load_part<S_T, V>(s, scale + at, end - at, 0.0f);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = (v[j] - mean) * factor * s[j];
#if HAS_BIAS
    po_load_part<B_T, V>(s, bias + at, end - at, 0.0f);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] += s[j];
#endif
    epilogue(v, a.epilogue, place[0], place[1], place[2], place[3], at, end - at EPILOGUE_ARGS);
#if HAS_FLOATS
    po_store_part<Y_T, V>(y + at, v, end - at);
#endif
#if HAS_BYTES
    Q_T bytes[V];
#pragma unroll
    for (int j = 0; j < V; j++) bytes[j] = Bytes<Q_T, ZERO>::of(pl_div_by(po_widen(Narrow<Y_T>::make(v[j])), a.scales[0], a.scales[1]));
    po_store_part<Q_T, V>(q + at, bytes, end - at);
#endif
  }
}
