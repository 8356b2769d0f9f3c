// Joins what blocks found on parts of the keys: sums are weighed by how each part's greatest score compares with
// the greatest of all.
//
// Set from outside: T, the output's storage; DV, features of a row of sums.

extern "C" __global__ void __launch_bounds__(128) attention_join(const float* parts, T* y, const AttentionJoinArgs a) {
  let_next_begin();
  wait_for_inputs();
  const i64 n_rows = a.n_rows, row = blockIdx.x;
  const float* scores = parts + n_rows * a.n_parts * DV + row * 2;
  float most = __int_as_float(0xff800000);
  for (int p = 0; p < a.n_parts; p++) most = fmaxf(most, scores[p * n_rows * 2]);
  const float base = most == __int_as_float(0xff800000) ? 0.0f : most;
  const int query = (int)(row % a.n_queries);
  const i64 rest = row / a.n_queries;
  y += rest / a.n_heads * a.y.batch + rest % a.n_heads * a.y.head + (i64)query * a.y.step;
  for (int col = threadIdx.x; col < a.value_size; col += 128) {
    float sum = 0.0f, total = 0.0f;
    for (int p = 0; p < a.n_parts; p++) {
      const float weight = exp2f(scores[p * n_rows * 2] - base);
      sum += weight * parts[(p * n_rows + row) * DV + col];
      total += weight * scores[p * n_rows * 2 + 1];
    }
    y[col] = Narrow<T>::make(sum / total);
  }
}
