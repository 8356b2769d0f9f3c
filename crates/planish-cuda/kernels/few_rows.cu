// Products of a few rows with a weight that is packed in tiles of 16 columns, read once and as it is stored. What a chunk of a
// tile holds stands in front: nbits_tile.cuh or sparse_tile.cuh, with `Tile`, `RowParts`, `DEPTH`, `SLOT_BYTES`.
//
// Set from outside, besides:
//   X_T Y_T      what rows and results are stored in
//   WIDE         1: rows begin at whole vectors of a lane's elements
//   ROWS         rows of a block, 8 to 64
//   TILES        tiles of a warp
//   WARPS        warps of a block: each takes chunks in turns, and they add up in shared memory
//   AHEAD        chunks of a tile that a warp has under way
//   SPLIT        blocks that share the chunks of a tile; where there are several, they leave their sums in `parts`, where
//                few_rows_sum adds them up
//
// The weight is the first factor of each product and its columns are the product's rows, so that few rows of x fill what
// the tensor cores take as columns: 8.

constexpr int M8 = ROWS / 8;
constexpr int COLUMNS = 16 * TILES;
constexpr int RING_BYTES = AHEAD * TILES * SLOT_BYTES;

// What a warp has of its tiles.
struct Share {
  Tile tiles[TILES];
  const X_T* rows;
  int k, rows_left;
  u32 ring;
  const u8* memory;
  float sum[TILES][M8][4];

  PL_INLINE void fetch(int slot, int turns, int chunk, int lane) {
#pragma unroll
    for (int t = 0; t < TILES; t++) tiles[t].fetch(ring + (slot * TILES + t) * SLOT_BYTES, turns, chunk, lane);
    copy_async_commit();
  }

  PL_INLINE void advance(int turns) {
#pragma unroll
    for (int t = 0; t < TILES; t++) tiles[t].advance(turns);
    rows += turns * TURN * DEPTH;
  }

  // The chunk in a slot. LAST: it may be the last, which may end within.
  template <bool LAST> PL_INLINE void take(int slot, int turns, int chunk, int lane) {
    RowParts parts[M8];
#pragma unroll
    for (int j = 0; j < M8; j++) {
      const int left = LAST ? k - chunk * DEPTH - RowParts::first(lane) : DEPTH;
      parts[j].load(rows + ((i64)(8 * j) * k + turns * TURN * DEPTH), 8 * j < rows_left, left);
    }
    copy_async_wait<AHEAD - 1>();
#pragma unroll
    for (int t = 0; t < TILES; t++)
      tiles[t].multiply_chunk(sum[t], memory + (slot * TILES + t) * SLOT_BYTES, parts, lane);
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
few_rows(const X_T* x, const void* weight, const void* scales, const void* zeros, Y_T* y, float* parts,
         const FewRowsArgs a EPILOGUE_PARAMS) {
  PO_DYNAMIC
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int tile0 = blockIdx.x * TILES, row0 = blockIdx.z * ROWS;
  int chunk = blockIdx.y * WARPS + warp;
  let_next_begin();

  Share own;
  own.memory = (const u8*)po_dynamic + warp * RING_BYTES;
  own.ring = shared_address(own.memory);
  own.k = a.k;
  own.rows_left = a.m - row0 - (lane >> 2);
  own.rows = x + ((i64)(row0 + (lane >> 2)) * a.k + chunk * DEPTH + RowParts::first(lane));
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    // Behind the last tile it is computed again, and not given out.
    own.tiles[t].start(a, weight, scales, zeros, tile0 + t < a.n_tiles ? tile0 + t : a.n_tiles - 1, chunk, lane);
#pragma unroll
    for (int j = 0; j < M8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) own.sum[t][j][e] = 0.0f;
  }
  // Weights do not depend on kernels before this one.
#pragma unroll
  for (int s = 0; s < AHEAD; s++) {
    if (chunk + s * TURN < a.n_chunks) own.fetch(s, s, chunk + s * TURN, lane);
    else copy_async_commit();
  }
  wait_for_inputs();

  // As long as all slots are taken and filled again; then the rest.
#pragma unroll 1
  for (; chunk + (2 * AHEAD - 1) * TURN < a.n_chunks; chunk += AHEAD * TURN) {
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      own.take<false>(s, s, chunk + s * TURN, lane);
      own.fetch(s, s + AHEAD, chunk + (s + AHEAD) * TURN, lane);
    }
    own.advance(AHEAD);
  }
  int slot = 0;
#pragma unroll 1
  for (; chunk < a.n_chunks; chunk += TURN) {
    own.take<true>(slot, 0, chunk, lane);
    if (chunk + AHEAD * TURN < a.n_chunks) own.fetch(slot, AHEAD, chunk + AHEAD * TURN, lane);
    else copy_async_commit();
    own.advance(1);
    slot = slot + 1 == AHEAD ? 0 : slot + 1;
  }
  __syncthreads();

  // Warps add up, first to last.
  typedef float Sums[ROWS][COLUMNS + 4];
  Sums* sums = (Sums*)po_dynamic;
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int j = 0; j < M8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        sums[warp][8 * j + 2 * (lane & 3) + (e & 1)][16 * t + (lane >> 2) + (e >= 2 ? 8 : 0)] = own.sum[t][j][e];
  __syncthreads();
#pragma unroll 1
  for (int idx = threadIdx.x; idx < ROWS * COLUMNS / 4; idx += 32 * WARPS) {
    const int row = row0 + idx / (COLUMNS / 4), within = idx % (COLUMNS / 4) * 4, column = tile0 * 16 + within;
    const int left = a.n - column;
    if (row >= a.m || left <= 0) continue;
    float v[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      v[e] = sums[0][row - row0][within + e];
#pragma unroll
      for (int w = 1; w < WARPS; w++) v[e] += sums[w][row - row0][within + e];
    }
#if SPLIT > 1
    *(float4*)(parts + ((i64)blockIdx.y * a.m + row) * (16 * a.n_tiles) + column) = make_float4(v[0], v[1], v[2], v[3]);
#else
    give_row(v, y, a, row, column, left EPILOGUE_ARGS);
#endif
  }
}
