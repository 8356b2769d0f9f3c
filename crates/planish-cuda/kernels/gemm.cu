// Matrix products over batches: rows and columns as they are, k innermost where it can be. product.cuh stands in
// front and says what is set from outside; besides:
//   A_T B_T          what the matrices are stored in
//   A_WIDE B_WIDE    1: k is innermost and lies in whole chunks of 16 bytes; 0: any strides
//   B_WEIGHT         1: B is a weight that no kernel before this one writes

struct Gemm {
  Finish finish;
  i64 a_row, a_k, a_batch[3];
  i64 b_column, b_k, b_batch[3];
  int m, n, k, k_b;        // k_b: where the rows of B end, at least k
  int batch[3];
  int tiles_m, tiles_n, split;
};

PL_INLINE void batch_of(const Gemm& p, int idx, int (&q)[4]) {
  q[2] = idx % p.batch[2];
  idx /= p.batch[2];
  q[1] = idx % p.batch[1];
  q[0] = idx / p.batch[1];
}

// `parts` holds the parts of split sums, with SPLIT_MEMORY.
#define ARGUMENTS \
  const void* a, const void* b, const void* bias, const void* residual, EXTRA_ARGUMENTS void* out, float* parts
#if CONSTANT_BIAS
#define ADDRESSES {out, constant_bias, residual, {EXTRA_NAMES}}
#else
#define ADDRESSES {out, bias, residual, {EXTRA_NAMES}}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(ARGUMENTS, const __grid_constant__ Gemm p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = ADDRESSES;
  extern __shared__ __align__(128) u8 memory[];
  const int split = (SPLIT_CLUSTER || SPLIT_MEMORY) ? p.split : 1;
  const int part = blockIdx.x % split;
  int tile = blockIdx.x / split;
  const int column_tile = tile % p.tiles_n;
  tile /= p.tiles_n;
  const int row_tile = tile % p.tiles_m, batch = tile / p.tiles_m;
  Place at;
  batch_of(p, batch, at.q);
  Tile t;
  t.m0 = row_tile * BM;
  t.n0 = column_tile * BN;
  t.rows = p.m - t.m0 < BM ? p.m - t.m0 : BM;
  t.columns = p.n - t.n0 < BN ? p.n - t.n0 : BN;
  const int all_steps = (p.k + KSTEP - 1) / KSTEP;
  const int from = (int)((i64)all_steps * part / split), until = (int)((i64)all_steps * (part + 1) / split);

  const A_T* first_a = (const A_T*)a + at.q[0] * p.a_batch[0] + at.q[1] * p.a_batch[1] + at.q[2] * p.a_batch[2] +
                       t.m0 * p.a_row;
  const B_T* first_b = (const B_T*)b + at.q[0] * p.b_batch[0] + at.q[1] * p.b_batch[1] + at.q[2] * p.b_batch[2] +
                       t.n0 * p.b_column;
#if A_WIDE
  RowsWide<BM> rows;
  rows.start(first_a, p.a_row, t.rows, from * KSTEP, p.k);
#else
  RowsStrided<BM, A_T> rows;
  rows.start(first_a, p.a_row, p.a_k, t.rows, from * KSTEP, p.k);
#endif
#if B_WIDE
  RowsWide<BN> columns;
  columns.start(first_b, p.b_column, t.columns, from * KSTEP, p.k_b);
#else
  RowsStrided<BN, B_T> columns;
  columns.start(first_b, p.b_column, p.b_k, t.columns, from * KSTEP, p.k);
#endif
  Sums sums;
  sum_up(sums, rows, columns, until - from, shared_address(memory), B_WEIGHT);
  give_out(sums, (float*)memory, t, split, [&](int row, int column, float(&v)[8]) {
    const int n = t.n0 + column;
#if SPLIT_MEMORY
    const i64 ld = (i64)p.tiles_n * BN, n_batch = (i64)p.batch[0] * p.batch[1] * p.batch[2];
    Eight<float>::store(parts + ((part * n_batch + batch) * p.m + t.m0 + row) * ld + n, v);
#else
    at.m = at.q[3] = t.m0 + row;
    finish8(p.finish, addresses, v, at, n, p.n - n < 8 ? p.n - n : 8);
#endif
  });
#endif
}

#if SPLIT_MEMORY
// Adds the parts up, first to last.
extern "C" __global__ void __launch_bounds__(128) gemm_reduce(ARGUMENTS, const __grid_constant__ Gemm p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = ADDRESSES;
  wait_for_inputs();
  let_next_begin();
  const int per_row = (p.n + 7) / 8;
  const i64 ld = (i64)p.tiles_n * BN, rows = (i64)p.batch[0] * p.batch[1] * p.batch[2] * p.m;
  const i64 g = (i64)blockIdx.x * 128 + threadIdx.x;
  if (g >= rows * per_row) return;
  const int column = (int)(g % per_row) * 8;
  const i64 row = g / per_row;
  float v[8];
  Eight<float>::load(v, parts + row * ld + column);
#pragma unroll 4
  for (int s = 1; s < p.split; s++) {
    float o[8];
    Eight<float>::load(o, parts + (s * rows + row) * ld + column);
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] += o[j];
  }
  Place at;
  batch_of(p, (int)(row / p.m), at.q);
  at.m = at.q[3] = (int)(row % p.m);
  finish8(p.finish, addresses, v, at, column, p.n - column < 8 ? p.n - column : 8);
#endif
}
#endif
