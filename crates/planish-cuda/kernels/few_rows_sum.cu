// Adds up the parts that the blocks of few_rows left, first to last, and goes on with what follows the product.
//   Y_T          what results are stored in
//   SPLIT        how many parts

extern "C" __global__ void __launch_bounds__(128)
few_rows_sum(const float* parts, Y_T* y, const FewRowsArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  const int per_row = 4 * a.n_tiles, idx = blockIdx.x * 128 + threadIdx.x;
  const int row = idx / per_row, column = idx % per_row * 4, left = a.n - column;
  if (row >= a.m || left <= 0) return;
  const i64 step = (i64)a.m * (16 * a.n_tiles);
  const float* from = parts + (i64)row * (16 * a.n_tiles) + column;
  float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int s = 0; s < SPLIT; s++) {
    const float4 part = *(const float4*)(from + s * step);
    v[0] += part.x;
    v[1] += part.y;
    v[2] += part.z;
    v[3] += part.w;
  }
  give_row(v, y, a, row, column, left EPILOGUE_ARGS);
}
