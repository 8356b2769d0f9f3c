// What the inputs of all steps add to the gates of a recurrent layer: pre = x * w^T + biases, in f32.
//
// Set from outside: T the storage; LATE whether the candidate's recurrent bias is left to the steps.
// A block has 64 rows of x and 64 gates, a thread 4 by 4 of them.
constexpr int TILE = 64, DEPTH = 16, PITCH = TILE + 4;

// Four neighbours of a row, zero beyond its end.
PL_INLINE void row_part(float (&v)[4], const T* row, int k, int n) {
  if (k + 4 <= n) {
    po_load<T, 4>(v, row + k);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = k + i < n ? po_widen(row[k + i]) : 0.0f;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    recurrent_inputs(const T* x, const T* w, const T* b, float* pre, const RecurrentArgs a) {
  let_next_begin();
  wait_for_inputs();
  __shared__ float rows[DEPTH][PITCH], gates[DEPTH][PITCH];
  const int direction = blockIdx.z, width = a.gates * a.hidden, n_rows = a.seq * a.batch;
  const int first_row = blockIdx.x * TILE, first_gate = blockIdx.y * TILE;
  // Who copies what, and who multiplies what.
  const int line = threadIdx.x / 4, part = threadIdx.x % 4 * 4;
  const int r0 = threadIdx.x / 16 * 4, g0 = threadIdx.x % 16 * 4;
  float sums[4][4] = {};
  for (int k = 0; k < a.size; k += DEPTH) {
    float v[4] = {}, u[4] = {};
    if (first_row + line < n_rows) row_part(v, x + (i64)(first_row + line) * a.size, k + part, a.size);
    if (first_gate + line < width)
      row_part(u, w + ((i64)direction * width + first_gate + line) * a.size, k + part, a.size);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      rows[part + i][line] = v[i];
      gates[part + i][line] = u[i];
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] = fmaf(rows[d][r0 + i], gates[d][g0 + j], sums[i][j]);
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int gate = first_gate + g0 + j;
    if (gate >= width) continue;
    float bias = 0.0f;
    if (b) {
      const T* own = b + (i64)direction * 2 * width;
      bias = po_widen(own[gate]);
      if (!(LATE && gate >= 2 * a.hidden)) bias += po_widen(own[width + gate]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = first_row + r0 + i;
      if (row < n_rows) pre[((i64)direction * n_rows + row) * width + gate] = sums[i][j] + bias;
    }
  }
}
