// Matrix products in tiles, D[m][n] = sum over k of A[m][k] B[n][k]: what convolutions and GEMMs share. Loaders
// bring A and B into shared memory, stage by stage; this file multiplies them, adds up the parts of a sum and
// finishes each element as epilogue.cuh, which stands in front, says.
//
// Set from outside:
//   SIMT             1: products on the plain units, in f32; 0: on tensor cores
//   MATH             f16, bf16, tf32, i8, e4m3: what tensor cores take products in
//   ELEM             what lies in shared memory: f16, bf16, float, i8 or e4m3
//   ACC              what accumulators are: float, or i32 for products of i8
//   BM BN            rows and columns of a block's tile
//   CHUNKS           16-byte chunks of k in one stage of a row, 4 or 8
//   WM WN WK         warps along rows, columns and k; warps along k take turns in the chunks of a stage
//   STAGES           stages in flight
//   SPLIT_CLUSTER    1: the blocks of a cluster share the k of one tile and add up through shared memory (sm_90)
//   SPLIT_MEMORY     1: blocks share the k of one tile and leave their accumulators in the workspace, where a second
//                    kernel adds them up
//   PLAIN_OUT        1 where the output's channels are outermost: neighbouring threads take neighbouring rows
//
// A tile's row in shared memory is CHUNKS chunks of 16 bytes; their order within the row is turned by the row's
// number, so that eight rows at one place in k lie in different banks.

constexpr int EPC = 16 / (int)sizeof(ELEM);
constexpr int KSTEP = CHUNKS * EPC;
constexpr int ROW_BYTES = CHUNKS * 16;
constexpr int THREADS = 32 * WM * WN * WK;
constexpr int A_BYTES = BM * ROW_BYTES;
constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
constexpr int TILE_LD = BN + 8;  // floats; rows of accumulators start in different banks

// Two accumulators side by side, and eight of them in shared or global memory.
struct alignas(8) AccPair { ACC x, y; };
PL_INLINE void load_eight(ACC (&v)[8], const ACC* at) {
  union { uint4 words[2]; ACC each[8]; } u;
  u.words[0] = ((const uint4*)at)[0];
  u.words[1] = ((const uint4*)at)[1];
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = u.each[i];
}
PL_INLINE void to_floats(float (&f)[8], const ACC (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i++) f[i] = (float)v[i];
}

template <class A, class B> struct Same { static constexpr bool yes = false; };
template <class A> struct Same<A, A> { static constexpr bool yes = true; };

PL_INLINE u32 place(int row, int chunk) {
  int turn = CHUNKS == 8 ? row & 7 : (row >> 1) & 3;
  return (u32)(row * ROW_BYTES + ((chunk ^ turn) << 4));
}

// ---------------------------------------------------------------------------------------------------------
// Accumulators of one warp

#if defined(__CUDA_ARCH__)
constexpr int MT = BM / WM / 16, NT = BN / WN / 8;   // products of a warp's tile, on tensor cores
constexpr int TM = BM / WM / 4, TN = BN / WN / 8;    // elements of a lane, on the plain units

struct Accumulators {
  static constexpr int COUNT = (BM / WM) * (BN / WN) / 32;
  // On the plain units, accumulators of f32 are taken in parts of some 32 products where a lane has registers for both: the
  // rounding of a sum of n products then grows with n / 32 and not with n, for an addition in 32.
  static constexpr bool IN_PARTS = SIMT && COUNT <= 64;
  static constexpr int PART_STEPS = WK;
  ACC v[COUNT], whole[IN_PARTS ? COUNT : 1];

  PL_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = 0;
    if constexpr (IN_PARTS) {
#pragma unroll
      for (int i = 0; i < COUNT; i++) whole[i] = 0;
    }
  }

  // After step t, from 0.
  PL_INLINE void end_part(int t) {
    if constexpr (IN_PARTS) {
      if (t % PART_STEPS == PART_STEPS - 1) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) { whole[i] += v[i]; v[i] = 0; }
      }
    }
  }

  // After the last step.
  PL_INLINE void end() {
    if constexpr (IN_PARTS) {
#pragma unroll
      for (int i = 0; i < COUNT; i++) v[i] += whole[i];
    }
  }

  // One stage: chunks wk, wk + WK, … of k (in pairs on tensor cores).
  PL_INLINE void step(u32 a, u32 b, int wm, int wn, int wk, int lane) {
#if SIMT
    {
      const int my = lane >> 3, nx = lane & 7;
#pragma unroll 1
      for (int i = 0; i < CHUNKS / WK; i++) {
        const int chunk = i * WK + wk;
        float4 av[TM], bv[TN];
#pragma unroll
        for (int m = 0; m < TM; m++) av[m] = load4(a + place(wm * (BM / WM) + m * 4 + my, chunk));
#pragma unroll
        for (int n = 0; n < TN; n++) bv[n] = load4(b + place(wn * (BN / WN) + n * 8 + nx, chunk));
#pragma unroll
        for (int m = 0; m < TM; m++)
#pragma unroll
          for (int n = 0; n < TN; n++) {
            ACC& s = v[m * TN + n];
            s = fmaf(av[m].x, bv[n].x, s);
            s = fmaf(av[m].y, bv[n].y, s);
            s = fmaf(av[m].z, bv[n].z, s);
            s = fmaf(av[m].w, bv[n].w, s);
          }
      }
    }
#else
    {
      const int a_row = wm * (BM / WM) + (lane & 15), a_chunk = lane >> 4;
      const int b_row = wn * (BN / WN) + ((lane >> 4) << 3) + (lane & 7), b_chunk = (lane >> 3) & 1;
#pragma unroll
      for (int i = 0; i < CHUNKS / 2 / WK; i++) {
        const int pair = i * WK + wk;
        u32 af[MT][4], bf[(NT + 1) / 2][4];
#pragma unroll
        for (int m = 0; m < MT; m++) load_matrix4(af[m], a + place(a_row + m * 16, 2 * pair + a_chunk));
        if constexpr (NT == 1) {
          load_matrix2(bf[0][0], bf[0][1], b + place(wn * (BN / WN) + (lane & 7), 2 * pair + b_chunk));
        } else {
#pragma unroll
          for (int n = 0; n < NT / 2; n++) load_matrix4(bf[n], b + place(b_row + n * 16, 2 * pair + b_chunk));
        }
        if constexpr (Same<MATH, tf32>::yes) {
#pragma unroll
          for (int m = 0; m < MT; m++)
#pragma unroll
            for (int j = 0; j < 4; j++) af[m][j] = to_tf32(af[m][j]);
#pragma unroll
          for (int n = 0; n < (NT + 1) / 2; n++)
#pragma unroll
            for (int j = 0; j < (NT == 1 ? 2 : 4); j++) bf[n][j] = to_tf32(bf[n][j]);
        }
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
          for (int n = 0; n < NT; n++) {
            ACC(&d)[4] = *(ACC(*)[4])(v + 4 * (m * NT + n));
            multiply<MATH>(d, af[m], bf[n / 2][2 * (n & 1)], bf[n / 2][2 * (n & 1) + 1]);
          }
      }
    }
#endif
  }

  // To shared memory, rows of TILE_LD.
  PL_INLINE void put(ACC* tile, int wm, int wn, int lane) {
    if constexpr (SIMT) {
      ACC* to = tile + (wm * (BM / WM) + (lane >> 3)) * TILE_LD + wn * (BN / WN) + (lane & 7);
#pragma unroll
      for (int m = 0; m < TM; m++)
#pragma unroll
        for (int n = 0; n < TN; n++) to[m * 4 * TILE_LD + n * 8] = v[m * TN + n];
    } else {
      ACC* to = tile + (wm * (BM / WM) + (lane >> 2)) * TILE_LD + wn * (BN / WN) + 2 * (lane & 3);
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
          const ACC* d = v + 4 * (m * NT + n);
          *(AccPair*)(to + m * 16 * TILE_LD + n * 8) = AccPair{d[0], d[1]};
          *(AccPair*)(to + (m * 16 + 8) * TILE_LD + n * 8) = AccPair{d[2], d[3]};
        }
    }
  }

  static PL_INLINE float4 load4(u32 at) {
    float4 r;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(at) : "memory");
    return r;
  }
};
#endif

// ---------------------------------------------------------------------------------------------------------
// Rows of 16-byte chunks: weights as they are packed, matrices with k innermost.

// Chunks of ROWS rows, each thread the same place in k of several rows.
template <int ROWS> struct RowsWide {
  static constexpr int PER = (ROWS * CHUNKS + THREADS - 1) / THREADS;
  static constexpr bool RAGGED = ROWS * CHUNKS % THREADS != 0;
  const ELEM* at;
  i64 ld;
  int there;  // bit i: row i of this thread exists
  int k, k_end;

  // `from` is the first row of the tile, of which `rows` exist.
  PL_INLINE void start(const ELEM* from, i64 row_step, int rows, int k0, int n_k) {
    const int row = threadIdx.x / CHUNKS;
    k = k0 + (int)(threadIdx.x % CHUNKS) * EPC;
    k_end = n_k;
    ld = row_step * (THREADS / CHUNKS);
    at = from + row * row_step;
    there = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
      const int r = row + i * (THREADS / CHUNKS);
      if (r < rows && r < ROWS) there |= 1 << i;
    }
  }
  PL_INLINE void load(u32 to) {
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const bool inside = k < k_end;
#pragma unroll
    for (int i = 0; i < PER; i++) {
      const int r = row + i * (THREADS / CHUNKS);
      const bool ok = inside && (there >> i & 1);
      if (!RAGGED || r < ROWS) copy_async16(to + place(r, chunk), at + (ok ? i * ld + k : 0), ok);
    }
    k += KSTEP;
  }
  // Loads are under way already.
  PL_INLINE void fetch() {}
  PL_INLINE void store(u32) {}
  static constexpr bool THROUGH_REGISTERS = false;
};

// Elements one by one, any strides and type; neighbouring threads take neighbouring rows.
template <class E, class T> struct Packed;
template <class H, class T> struct PackedHalf {
  static PL_INLINE void pack(u32 (&w)[4], const T (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = Pair<H>::pack(to_f32(v[2 * i]), to_f32(v[2 * i + 1]));
  }
};
template <class H> struct PackedSame {
  static PL_INLINE void pack(u32 (&w)[4], const H (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = (u32)v[2 * i].bits | ((u32)v[2 * i + 1].bits << 16);
  }
};
template <class T> struct Packed<f16, T> : PackedHalf<f16, T> {};
template <class T> struct Packed<bf16, T> : PackedHalf<bf16, T> {};
template <> struct Packed<f16, f16> : PackedSame<f16> {};
template <> struct Packed<bf16, bf16> : PackedSame<bf16> {};
template <class B> struct PackedBytes {
  static PL_INLINE void pack(u32 (&w)[4], const B (&v)[16]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      w[i] = code(v[4 * i]) | code(v[4 * i + 1]) << 8 | code(v[4 * i + 2]) << 16 | code(v[4 * i + 3]) << 24;
  }
  static PL_INLINE u32 code(i8 v) { return (u8)v; }
  static PL_INLINE u32 code(e4m3 v) { return v.bits; }
};
template <> struct Packed<i8, i8> : PackedBytes<i8> {};
template <> struct Packed<e4m3, e4m3> : PackedBytes<e4m3> {};
template <class T> struct Packed<float, T> {
  static PL_INLINE void pack(u32 (&w)[4], const T (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = __float_as_uint(to_f32(v[i]));
  }
};
template <class T> struct Zero { static PL_INLINE T make() { return (T)0; } };
template <> struct Zero<f16> { static PL_INLINE f16 make() { f16 r = {0}; return r; } };
template <> struct Zero<bf16> { static PL_INLINE bf16 make() { bf16 r = {0}; return r; } };

// A thread's chunks of ROWS rows, from registers to shared memory.
template <int ROWS, int PER> PL_INLINE void store_chunks(u32 to, const u32 (&w)[PER][4]) {
#pragma unroll
  for (int i = 0; i < PER; i++) {
    const int idx = threadIdx.x + i * THREADS;
    if (ROWS * CHUNKS % THREADS == 0 || idx < ROWS * CHUNKS)
      store_shared16(to + place(idx % ROWS, idx / ROWS), w[i][0], w[i][1], w[i][2], w[i][3]);
  }
}

template <int ROWS, class T> struct RowsStrided {
  static constexpr int PER = (ROWS * CHUNKS + THREADS - 1) / THREADS;
  static constexpr bool THROUGH_REGISTERS = true;
  const T* at;
  i64 row_step, k_step;
  int rows, k, k_end;
  u32 w[PER][4];

  PL_INLINE void start(const T* from, i64 step, i64 along_k, int n_rows, int k0, int n_k) {
    at = from; row_step = step; k_step = along_k; rows = n_rows < ROWS ? n_rows : ROWS; k = k0; k_end = n_k;
  }
  PL_INLINE void load(u32) {}
  PL_INLINE void fetch() {
#pragma unroll
    for (int i = 0; i < PER; i++) {
      const int idx = threadIdx.x + i * THREADS, row = idx % ROWS, first = k + idx / ROWS * EPC;
      T v[EPC];
#pragma unroll
      for (int e = 0; e < EPC; e++) {
        v[e] = Zero<T>::make();
        if (row < rows && first + e < k_end && idx < ROWS * CHUNKS) v[e] = at[row * row_step + (first + e) * k_step];
      }
      Packed<ELEM, T>::pack(w[i], v);
    }
    k += KSTEP;
  }
  PL_INLINE void store(u32 to) { store_chunks<ROWS>(to, w); }
};

// ---------------------------------------------------------------------------------------------------------
// The block

struct Tile { int m0, n0, rows, columns; };

#if defined(__CUDA_ARCH__)
// One block's share: a tile of one of the products, and its steps of k. A kernel's parameters `P` have the Cut `cut`,
// the sizes `n` and `k`; `rows_of(p)` of one product and how many `products_of(p)` there are, the kernel's text tells.
struct Share {
  Tile tile;
  int product, part, split, from, until;

  template <class P> PL_INLINE explicit Share(const P& p) {
    split = (SPLIT_CLUSTER || SPLIT_MEMORY) ? p.cut.split : 1;
    part = blockIdx.x % split;
    int rest = blockIdx.x / split;
    const int column_tile = rest % p.cut.tiles_n;
    rest /= p.cut.tiles_n;
    const int row_tile = rest % p.cut.tiles_m;
    product = rest / p.cut.tiles_m;
    tile.m0 = row_tile * BM;
    tile.n0 = column_tile * BN;
    const int m = rows_of(p);
    tile.rows = m - tile.m0 < BM ? m - tile.m0 : BM;
    tile.columns = p.n - tile.n0 < BN ? p.n - tile.n0 : BN;
    const int steps = (p.k + KSTEP - 1) / KSTEP;
    from = (int)((i64)steps * part / split);
    until = (int)((i64)steps * (part + 1) / split);
  }
};

// Runs `steps` stages of both loaders. Weights do not depend on earlier kernels, so they start before the wait.
template <class A, class B> PL_INLINE void sum_up(Accumulators& acc, A& a, B& b, int steps, u32 shared, bool b_is_weight) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int wm = warp % WM, wn = warp / WM % WN, wk = warp / (WM * WN);
  constexpr int AHEAD = STAGES - 1;
  let_next_begin();
  if (b_is_weight && !B::THROUGH_REGISTERS) {
#pragma unroll 1
    for (int s = 0; s < AHEAD; s++)
      if (s < steps) b.load(shared + s * STAGE_BYTES + A_BYTES);
  }
  wait_for_inputs();
#pragma unroll 1
  for (int s = 0; s < AHEAD; s++) {
    if (s < steps) {
      const u32 at = shared + s * STAGE_BYTES;
      a.load(at);
      if (!b_is_weight || B::THROUGH_REGISTERS) b.load(at + A_BYTES);
      if (A::THROUGH_REGISTERS) { a.fetch(); a.store(at); }
      if (B::THROUGH_REGISTERS) { b.fetch(); b.store(at + A_BYTES); }
    }
    copy_async_commit();
  }
  acc.clear();
  int slot = 0, next = AHEAD;
#pragma unroll 1
  for (int t = 0; t < steps; t++) {
    copy_async_wait<AHEAD - 1>();
    __syncthreads();
    const u32 to = shared + next * STAGE_BYTES;
    const bool more = t + AHEAD < steps;
    if (more) {
      a.load(to);
      b.load(to + A_BYTES);
      if (A::THROUGH_REGISTERS) a.fetch();
      if (B::THROUGH_REGISTERS) b.fetch();
    }
    copy_async_commit();
    const u32 from = shared + slot * STAGE_BYTES;
    acc.step(from, from + A_BYTES, wm, wn, wk, lane);
    acc.end_part(t);
    if (more) {
      if (A::THROUGH_REGISTERS) a.store(to);
      if (B::THROUGH_REGISTERS) b.store(to + A_BYTES);
    }
    slot = slot + 1 == STAGES ? 0 : slot + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  acc.end();
  copy_async_wait<0>();
  __syncthreads();
}

// Puts the warps' accumulators together in `tile` (shared memory), then gives every eight neighbours of a row, added up
// over warps and over the blocks of a cluster, in an order that is always the same, to `take(row, column, v)`.
template <class F> PL_INLINE void give_out(Accumulators& acc, ACC* tile, const Tile& t, int split, F take) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int wm = warp % WM, wn = warp / WM % WN, wk = warp / (WM * WN);
  acc.put(tile + wk * BM * TILE_LD, wm, wn, lane);
  constexpr int GROUPS = BM * BN / 8;
  int first = threadIdx.x, step = THREADS;
#if SPLIT_CLUSTER
  if (WK > 1) {
    __syncthreads();
    for (int g = threadIdx.x; g < BM * BN / 2; g += THREADS) {
      AccPair* at = (AccPair*)(tile + g / (BN / 2) * TILE_LD + g % (BN / 2) * 2);
      AccPair s = *at;
#pragma unroll
      for (int w = 1; w < WK; w++) {
        AccPair o = at[w * (BM * TILE_LD / 2)];
        s.x += o.x; s.y += o.y;
      }
      *at = s;
    }
  }
  cluster_sync();
  first += cluster_rank() * THREADS;
  step *= split;
  const u32 here = shared_address(tile);
#else
  __syncthreads();
#endif
#pragma unroll 1
  for (int g = first; g < GROUPS; g += step) {
#if PLAIN_OUT
    const int row = g % BM, column = g / BM * 8;
#else
    const int row = g / (BN / 8), column = g % (BN / 8) * 8;
#endif
    ACC v[8];
#if SPLIT_CLUSTER
    const u32 at = here + (row * TILE_LD + column) * 4;
#pragma unroll 4
    for (int s = 0; s < split; s++) {
      const u32 there = cluster_address(at, s);
      union { float4 words[2]; ACC each[8]; } o;
      o.words[0] = load_cluster16(there);
      o.words[1] = load_cluster16(there + 16);
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = s == 0 ? o.each[j] : v[j] + o.each[j];
    }
#else
    const ACC* at = tile + row * TILE_LD + column;
    load_eight(v, at);
#pragma unroll
    for (int w = 1; w < WK; w++) {
      ACC o[8];
      load_eight(o, at + w * BM * TILE_LD);
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] += o[j];
    }
#endif
    if (row < t.rows && column < t.columns) take(row, column, v);
  }
#if SPLIT_CLUSTER
  // Nobody leaves while others read its shared memory.
  cluster_sync();
#endif
}

#if SPLIT_MEMORY
#define REDUCE_THREADS 128

// Leaves a block's eight neighbours where `add_parts` finds them.
template <class P>
PL_INLINE void leave_part(const P& p, const Share& share, float* parts, int row, int n, const ACC (&v)[8]) {
  const i64 ld = (i64)p.cut.tiles_n * BN;
  union { uint4 words[2]; ACC each[8]; } u;
#pragma unroll
  for (int i = 0; i < 8; i++) u.each[i] = v[i];
  uint4* to = (uint4*)(parts + (((i64)share.part * products_of(p) + share.product) * rows_of(p) + row) * ld + n);
  to[0] = u.words[0];
  to[1] = u.words[1];
}

// Adds the parts up, first to last; `finish(product, row, n, v, count)` takes eight neighbours, of which `count` exist.
template <class P, class F> PL_INLINE void add_parts(const P& p, const float* workspace, F finish) {
  const ACC* parts = (const ACC*)workspace;
  let_next_begin();
  wait_for_inputs();
  const int m = rows_of(p), per_row = (p.n + 7) / 8;
  const i64 ld = (i64)p.cut.tiles_n * BN, rows = products_of(p) * m;
  const i64 g = (i64)blockIdx.x * REDUCE_THREADS + threadIdx.x;
  if (g >= rows * per_row) return;
  const int column = (int)(g % per_row) * 8;
  const i64 row = g / per_row;
  ACC v[8];
  load_eight(v, parts + row * ld + column);
#pragma unroll 4
  for (int s = 1; s < p.cut.split; s++) {
    ACC o[8];
    load_eight(o, parts + (s * rows + row) * ld + column);
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] += o[j];
  }
  float sums[8];
  to_floats(sums, v);
  finish((int)(row / m), (int)(row % m), column, sums, p.n - column < 8 ? p.n - column : 8);
}
#endif
#endif
