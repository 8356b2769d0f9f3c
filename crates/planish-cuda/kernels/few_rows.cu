// Products of a few rows with a weight that is packed in tiles of 16 columns, read once and as it is stored. What a chunk of a
// tile holds stands in front: nbits_tile.cuh or sparse_tile.cuh, with `Tile`, `RowParts`, `DEPTH`, `GROUP`, `SHARE`,
// `SLOT_BYTES`.
//
// Set from outside, besides:
//   X_T Y_T      what rows and results are stored in
//   WIDE         1: rows begin at whole vectors of a lane's elements
//   ROWS         rows of a block, 8 to 64
//   TILES        tiles of a warp
//   WARPS        warps of a block
//   STAGED       0: warps have the same tiles and take chunks in turns, and add up in shared memory. 1: warps have tiles of
//                their own and take all chunks, and rows of x come into shared memory for all of them
//   OWN_ROWS     rows of x that come into shared memory with each chunk of a warp, where it is not staged, a power of two; 0:
//                they are loaded when they are multiplied
//   AHEAD        chunks of a tile that a warp has under way
//   SPLIT        blocks that share the chunks of a tile; where there are several, they leave their sums in `parts`, where
//                few_rows_sum adds them up
//
// The weight is the first factor of each product and its columns are the product's rows, so that few rows of x fill what
// the tensor cores take as columns: 8.

constexpr int M8 = ROWS / 8;
constexpr int RING_BYTES = AHEAD * TILES * SLOT_BYTES;

// Rows of x in shared memory: of 64 or 128 bytes. In the latter eight rows have their parts of 16 bytes exchanged, each in
// another way, so that they lie in different banks at one place along k, and two neighbours at four places.
constexpr int X_ROW = DEPTH * (int)sizeof(X_T);
constexpr int X_BYTES = ROWS * X_ROW;
PL_INLINE int x_place(int row, int byte) {
  return row * X_ROW + (X_ROW == 128 ? byte ^ ((row & 1) * 64 + (row >> 1 & 3) * 16) : byte);
}

// What a warp has of its tiles.
struct Share {
  Tile tiles[TILES];
  u32 ring;
  const u8* memory;
  float sum[TILES][M8][4];

  PL_INLINE void start(const FewRowsArgs& a, const void* weight, const void* scales, const void* zeros, int tile0, int chunk,
                       int lane) {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      // Behind the last tile it is computed again, and not given out.
      tiles[t].start(a, weight, scales, zeros, tile0 + t < a.n_tiles ? tile0 + t : a.n_tiles - 1, chunk, lane);
#pragma unroll
      for (int j = 0; j < M8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[t][j][e] = 0.0f;
    }
  }

  PL_INLINE void fetch(int slot, int turns, int chunk, int lane) {
#pragma unroll
    for (int t = 0; t < TILES; t++) tiles[t].fetch(ring + (slot * TILES + t) * SLOT_BYTES, turns, chunk, lane);
  }

  PL_INLINE void advance(int turns) {
#pragma unroll
    for (int t = 0; t < TILES; t++) tiles[t].advance(turns);
  }

  // Multiplies the chunk in a slot; `load(rows, group)` gives a group of each eight rows.
  template <class F> PL_INLINE void take(int slot, int lane, F load) {
    Tile::Own own[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) own[t] = Tile::own(memory + (slot * TILES + t) * SLOT_BYTES, lane);
#pragma unroll
    for (int g = 0; g < DEPTH / GROUP; g++) {
      RowParts rows[M8];
      load(rows, g);
#pragma unroll
      for (int t = 0; t < TILES; t++)
        tiles[t].multiply_group(sum[t], memory + (slot * TILES + t) * SLOT_BYTES, own[t], g, rows, lane);
    }
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
few_rows(const X_T* x, const void* weight, const void* scales, const void* zeros, Y_T* y, float* parts,
         const FewRowsArgs a EPILOGUE_PARAMS) {
  PO_DYNAMIC
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int row0 = blockIdx.z * ROWS;
  Share own;
  own.memory = (const u8*)po_dynamic + warp * RING_BYTES;
  own.ring = shared_address(own.memory);
  let_next_begin();

#if STAGED
  const int tile0 = blockIdx.x * (WARPS * TILES);
  int chunk = blockIdx.y;
  own.start(a, weight, scales, zeros, tile0 + warp * TILES, chunk, lane);
  u8* const x_memory = (u8*)po_dynamic + WARPS * RING_BYTES;
  const u32 x_ring = shared_address(x_memory);
  auto stage = [&](int slot, int at) {
#pragma unroll
    for (int idx = threadIdx.x; idx < X_BYTES / 16; idx += 32 * WARPS) {
      const int row = idx / (X_ROW / 16), byte = idx % (X_ROW / 16) * 16;
      const int k = at * DEPTH + byte / (int)sizeof(X_T);
      const bool there = row0 + row < a.m && k < a.k;
      copy_async16(x_ring + slot * X_BYTES + x_place(row, byte), there ? x + (i64)(row0 + row) * a.k + k : x, there);
    }
  };
  // Weights do not depend on kernels before this one.
#pragma unroll
  for (int s = 0; s < AHEAD - 1; s++)
    if (chunk + s * TURN < a.n_chunks) own.fetch(s, s, chunk + s * TURN, lane);
  wait_for_inputs();
#pragma unroll
  for (int s = 0; s < AHEAD - 1; s++) {
    if (chunk + s * TURN < a.n_chunks) stage(s, chunk + s * TURN);
    copy_async_commit();
  }
  int slot = 0;
#pragma unroll 1
  for (; chunk < a.n_chunks; chunk += TURN) {
    copy_async_wait<AHEAD - 2>();
    __syncthreads();
    // All are done with the slot before this one.
    const int next = chunk + (AHEAD - 1) * TURN, free = slot == 0 ? AHEAD - 1 : slot - 1;
    if (next < a.n_chunks) {
      own.fetch(free, AHEAD - 1, next, lane);
      stage(free, next);
    }
    copy_async_commit();
    const u8* from = x_memory + slot * X_BYTES;
    own.take(slot, lane, [&](RowParts(&rows)[M8], int group) {
#pragma unroll
      for (int j = 0; j < M8; j++)
        rows[j].read(from + x_place(8 * j + RowParts::row_of(lane), RowParts::byte_of(group, lane)));
    });
    own.advance(1);
    slot = slot + 1 == AHEAD ? 0 : slot + 1;
  }
#else
  const int tile0 = blockIdx.x * TILES;
  int chunk = blockIdx.y * WARPS + warp;
  own.start(a, weight, scales, zeros, tile0, chunk, lane);
  const X_T* at = x + ((i64)(row0 + (lane >> 2)) * a.k + chunk * DEPTH + SHARE * (lane & 3));
  const int rows_left = a.m - row0 - (lane >> 2);
  // Lanes copy rows of x for their warp.
  const int row = lane >> 2;
  const u8* const x_memory = (const u8*)po_dynamic + WARPS * RING_BYTES + warp * (AHEAD * OWN_ROWS * X_ROW);
  // Fetches the chunk that lies `turns` after the one that pointers stand at; `left` elements of a row are left from there on.
  auto fetch_rows = [&](int slot, int turns, int left) {
    if (OWN_ROWS == 0 || row >= OWN_ROWS) return;
    const u32 to = shared_address(x_memory) + slot * (OWN_ROWS * X_ROW);
#pragma unroll
    for (int j = 0; j < (OWN_ROWS + 7) / 8; j++)
#pragma unroll
      for (int g = 0; g < DEPTH / GROUP; g++) {
        const bool there = 8 * j < rows_left && left > g * GROUP;
        const X_T* from = there ? at + ((i64)(8 * j) * a.k + turns * TURN * DEPTH + g * GROUP) : x;
        constexpr int BYTES = SHARE * (int)sizeof(X_T);
        const u32 place = to + x_place(8 * j + row, (g * GROUP + SHARE * (lane & 3)) * (int)sizeof(X_T));
        if (BYTES == 16) copy_async16(place, from, there);
        else copy_async_some<BYTES>(place, from, there);
      }
  };
  auto take = [&](int slot, int turns, int left) {
    RowParts ready[DEPTH / GROUP][M8];
#if OWN_ROWS > 0
    copy_async_wait<AHEAD - 1>();
    if (RowParts::ARE_OTHERS) __syncwarp();
#pragma unroll
    for (int g = 0; g < DEPTH / GROUP; g++)
#pragma unroll
      for (int j = 0; j < M8; j++) {
        // Where there are fewer rows than a block takes, some are taken twice, and not given out.
        const int from = (8 * j + RowParts::row_of(lane)) & (OWN_ROWS - 1);
        ready[g][j].read(x_memory + slot * (OWN_ROWS * X_ROW) + x_place(from, RowParts::byte_of(g, lane)));
      }
    if (RowParts::ARE_OTHERS) __syncwarp();
#else
#pragma unroll
    for (int g = 0; g < DEPTH / GROUP; g++)
#pragma unroll
      for (int j = 0; j < M8; j++) {
        X_T e[SHARE];
        po_fetch<X_T, SHARE, WIDE>(e, at + ((i64)(8 * j) * a.k + turns * TURN * DEPTH + g * GROUP),
                                   8 * j < rows_left && left > g * GROUP, left - g * GROUP);
        ready[g][j].set(e);
      }
    copy_async_wait<AHEAD - 1>();
#endif
    own.take(slot, lane, [&](RowParts(&rows)[M8], int group) {
#pragma unroll
      for (int j = 0; j < M8; j++) rows[j] = ready[group][j];
    });
  };
  int left = a.k - chunk * DEPTH - SHARE * (lane & 3);
  // Weights do not depend on kernels before this one.
#pragma unroll
  for (int s = 0; s < AHEAD; s++) {
    if (chunk + s * TURN < a.n_chunks) own.fetch(s, s, chunk + s * TURN, lane);
    if (OWN_ROWS == 0) copy_async_commit();
  }
  wait_for_inputs();
  if (OWN_ROWS > 0) {
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      if (chunk + s * TURN < a.n_chunks) fetch_rows(s, s, left - s * TURN * DEPTH);
      copy_async_commit();
    }
  }

  // As long as all slots are taken and filled again; then the rest, which may end within a chunk.
#pragma unroll 1
  for (; chunk + (2 * AHEAD - 1) * TURN < a.n_chunks; chunk += AHEAD * TURN) {
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      take(s, s, DEPTH);
      own.fetch(s, s + AHEAD, chunk + (s + AHEAD) * TURN, lane);
      fetch_rows(s, s + AHEAD, left - (s + AHEAD) * TURN * DEPTH);
      copy_async_commit();
    }
    own.advance(AHEAD);
    at += AHEAD * TURN * DEPTH;
    left -= AHEAD * TURN * DEPTH;
  }
  int slot = 0;
#pragma unroll 1
  for (; chunk < a.n_chunks; chunk += TURN) {
    take(slot, 0, left);
    if (chunk + AHEAD * TURN < a.n_chunks) {
      own.fetch(slot, AHEAD, chunk + AHEAD * TURN, lane);
      fetch_rows(slot, AHEAD, left - AHEAD * TURN * DEPTH);
    }
    copy_async_commit();
    own.advance(1);
    at += TURN * DEPTH;
    left -= TURN * DEPTH;
    slot = slot + 1 == AHEAD ? 0 : slot + 1;
  }
#endif
  __syncthreads();

  // Through shared memory to neighbours of a row; warps with the same tiles add up, first to last.
  constexpr int COLUMNS = (STAGED ? WARPS : 1) * 16 * TILES, SHARERS = STAGED ? 1 : WARPS;
  typedef float Sums[ROWS][COLUMNS + 4];
  Sums* sums = (Sums*)po_dynamic;
  const int part = STAGED ? 0 : warp, column0 = STAGED ? warp * 16 * TILES : 0;
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int j = 0; j < M8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        sums[part][8 * j + 2 * (lane & 3) + (e & 1)][column0 + 16 * t + (lane >> 2) + (e >= 2 ? 8 : 0)] = own.sum[t][j][e];
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
      for (int w = 1; w < SHARERS; w++) v[e] += sums[w][row - row0][within + e];
    }
#if SPLIT > 1
    *(float4*)(parts + ((i64)blockIdx.y * a.m + row) * (16 * a.n_tiles) + column) = make_float4(v[0], v[1], v[2], v[3]);
#else
    give_row(v, y, a, row, column, left EPILOGUE_ARGS);
#endif
  }
}
