// Joins what blocks found on parts of the keys: sums are weighed by how each part's greatest score compares with
// the greatest of all.
//
// Integers: 0 rows, 1 heads, 2 queries, 3 parts, 4 features; the output's strides of 5 batch, 6 head and 7 step.
//
// Set from outside: T, the output's storage; DV, features of a row of sums.

extern "C" __global__ void __launch_bounds__(128) attention_join(const float* parts, T* y, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  const i64 n_rows = a.v[0], row = blockIdx.x;
  const float* scores = parts + n_rows * a.v[3] * DV + row * 2;
  float most = __int_as_float(0xff800000);
  for (int p = 0; p < a.v[3]; p++) most = fmaxf(most, scores[p * n_rows * 2]);
  const float base = most == __int_as_float(0xff800000) ? 0.0f : most;
  const int query = (int)(row % a.v[2]);
  const i64 rest = row / a.v[2];
  y += rest / a.v[1] * a.v[5] + rest % a.v[1] * a.v[6] + (i64)query * a.v[7];
  for (int col = threadIdx.x; col < a.v[4]; col += 128) {
    float sum = 0.0f, total = 0.0f;
    for (int p = 0; p < a.v[3]; p++) {
      const float weight = exp2f(scores[p * n_rows * 2] - base);
      sum += weight * parts[(p * n_rows + row) * DV + col];
      total += weight * scores[p * n_rows * 2 + 1];
    }
    y[col] = Narrow<T>::make(sum / total);
  }
}
