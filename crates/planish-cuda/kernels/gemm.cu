// Matrix products over batches: rows and columns as they are, k innermost where it can be. product.cuh stands in
// front and says what is set from outside; besides:
//   A_T B_T          what the matrices are stored in
//   A_WIDE B_WIDE    1: k is innermost and lies in whole chunks of 16 bytes; 0: any strides
//   B_WEIGHT         1: B is a weight that no kernel before this one writes

PL_INLINE int rows_of(const GemmArgs& p) { return p.m; }
PL_INLINE i64 products_of(const GemmArgs& p) { return (i64)p.batch[0] * p.batch[1] * p.batch[2]; }

PL_INLINE void batch_of(const GemmArgs& p, int idx, int (&q)[4]) {
  q[2] = idx % p.batch[2];
  idx /= p.batch[2];
  q[1] = idx % p.batch[1];
  q[0] = idx / p.batch[1];
}

#if defined(__CUDA_ARCH__)
// The loader of rows that lie so; `k_wide` is where rows in whole chunks end.
template <int ROWS, bool WIDE, class T>
PL_INLINE auto rows_from(const T* first, i64 row, i64 step, int count, int k0, int k, int k_wide) {
  if constexpr (WIDE) {
    RowsWide<ROWS> rows;
    rows.start(first, row, count, k0, k_wide);
    return rows;
  } else {
    RowsStrided<ROWS, T> rows;
    rows.start(first, row, step, count, k0, k);
    return rows;
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const void* a, const void* b, EPILOGUE_ARGUMENTS, const __grid_constant__ GemmArgs p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = EPILOGUE_ADDRESSES;
  extern __shared__ __align__(128) u8 memory[];
  const Share share(p);
  Place at;
  batch_of(p, share.product, at.q);
  const Tile& t = share.tile;
  const int k0 = share.from * KSTEP;

  const A_T* first_a = (const A_T*)a + at.q[0] * p.a_batch[0] + at.q[1] * p.a_batch[1] + at.q[2] * p.a_batch[2] +
                       t.m0 * p.a_row;
  const B_T* first_b = (const B_T*)b + at.q[0] * p.b_batch[0] + at.q[1] * p.b_batch[1] + at.q[2] * p.b_batch[2] +
                       t.n0 * p.b_column;
  auto rows = rows_from<BM, A_WIDE>(first_a, p.a_row, p.a_k, t.rows, k0, p.k, p.k);
  auto columns = rows_from<BN, B_WIDE>(first_b, p.b_column, p.b_k, t.columns, k0, p.k, p.k_b);
  Accumulators acc;
  sum_up(acc, rows, columns, share.until - share.from, shared_address(memory), B_WEIGHT);
  give_out(acc, (ACC*)memory, t, share.split, [&](int row, int column, ACC(&v)[8]) {
    const int n = t.n0 + column;
#if SPLIT_MEMORY
    leave_part(p, share, parts, t.m0 + row, n, v);
#else
    at.m = at.q[3] = t.m0 + row;
    float sums[8];
    to_floats(sums, v);
    epilogue8(p.epilogue, addresses, sums, at, n, p.n - n < 8 ? p.n - n : 8);
#endif
  });
#endif
}

#if SPLIT_MEMORY
extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
gemm_reduce(const void* a, const void* b, EPILOGUE_ARGUMENTS, const __grid_constant__ GemmArgs p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = EPILOGUE_ADDRESSES;
  add_parts(p, parts, [&](int batch, int row, int n, float(&v)[8], int count) {
    Place at;
    batch_of(p, batch, at.q);
    at.m = at.q[3] = row;
    epilogue8(p.epilogue, addresses, v, at, n, count);
  });
#endif
}
#endif
