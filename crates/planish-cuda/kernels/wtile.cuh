// A tile of the kernels on warpgroup products: the block's warps, the stages that TMA fills and
// warpgroups empty, and the way of the accumulators to memory, through a cluster where its blocks share them. epilogue_row.cuh
// and hopper.cuh stand in front, and `Accumulators` (a thread's accumulators) with `warpgroup_product` for the width and type at hand
// is generated.
//
// Set from outside, besides what they ask for:
//   ACC          what accumulators are: float, or i32 for products of bytes
//   BM BN BK     the tile; BM is 64 for each warpgroup, BK counts 2 bytes each: one number of 16 bits or two bytes
//   SPLIT        blocks of a cluster that share one tile's sum
//   MIN_BLOCKS   blocks of one multiprocessor that registers must allow
//   RUN          neighbouring columns that a lane holds of every 4 * RUN: 8, or 16 where results are bytes, so that it stores
//                16 bytes at once. TMA brings the rows of b in the order that makes it so. 0: as products leave them, in
//                pairs, which lanes exchange first
//   OUT_TAPS     taps of a transposed convolution, whose outputs lie apart: columns are those of all taps; 0 elsewhere
//   RESIDUALS    tiles of residuals that TMA brings ahead into shared memory; 0: they come by loads
//
// SPLIT > 1: each block sums its part, sends each row's share to the block that owns it, and the owner adds them in
// the order of their ranks, so results do not depend on timing. Such blocks have one tile each.

#define N_GROUPS (BM / 64)
#define N_CONSUMERS (N_GROUPS * 128)
// One warp more drives TMA.
#define N_THREADS (N_CONSUMERS + 32)
// A row of partial accumulators is 64 bytes longer than needed: two neighbouring rows then lie in different banks.
#define PART_PITCH (BN * 4 + 64)
#define OWN_ROWS (BM / SPLIT)
#define PART_BYTES (SPLIT > 1 ? BM * PART_PITCH : 0)
// Vectors of eight columns that a thread finishes of the rows that its block owns.
#define OWN_VECTORS ((OWN_ROWS * (BN / 8) + N_CONSUMERS - 1) / N_CONSUMERS)
// Of 32 columns each: what four lanes hold of a row.
#define N_QUADS ((BN + 31) / 32)
// Rows of b as TMA brings them are permuted in groups of so many.
#define RUN_GROUP (4 * (RUN ? RUN : 8))
// Eights of columns that are given out together.
#define EIGHTS (RUN == 16 ? 2 : 1)
#if RESIDUALS
#define RESIDUAL_BYTES (BM * BN * sizeof(RES_T))
#else
#define RESIDUAL_BYTES 0
#endif

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

#if __CUDA_ARCH__ >= 900

// The swizzle goes by address bits, so stages begin at multiples of 1024 bytes.
PL_INLINE u32 first_stage(const u8 *raw) { return (shared_address(raw) + 1023) & ~1023u; }

// N stages in turns: one barrier of each says that it is filled, the other that every warp has read it.
template <int N> struct Ring {
    enum : u32 { BYTES = 16 * N };
    u32 full, empty;

    PL_INLINE explicit Ring(u32 at) : full(at), empty(at + 8 * N) {}
    PL_INLINE void init() const {
        for (int s = 0; s < N; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, N_GROUPS * 4);
        }
    }
    // Until the stage of this turn may be filled again.
    PL_INLINE void wait_empty(i32 turn) const {
        if (turn >= N) barrier_wait(empty + 8 * (turn % N), (turn / N - 1) & 1);
    }
    PL_INLINE void wait_full(i32 turn) const { barrier_wait(full + 8 * (turn % N), (turn / N) & 1); }
    // By one lane of each warp that reads.
    PL_INLINE void release(i32 turn) const { barrier_arrive(empty + 8 * (turn % N)); }
};

// What a block begins with: barriers, and the promise that the next grid may come. `gathered` counts the parts that
// arrive from the cluster.
template <class... Rings> PL_INLINE void begin_block(u32 gathered, const Rings &...rings) {
    let_next_begin();
    if (threadIdx.x == 0) {
        (rings.init(), ...);
        if (SPLIT > 1) barrier_init(gathered, 1);
        barrier_init_fence();
        if (SPLIT > 1) barrier_expect(gathered, BM * BN * 4);
    }
    __syncthreads();
    if (SPLIT > 1) cluster_arrive();
}

// A meeting of the warps that multiply.
PL_INLINE void consumers_meet() { asm volatile("bar.sync 1, %0;" ::"n"(N_CONSUMERS) : "memory"); }

PL_INLINE void clear(Accumulators &acc) {
#pragma unroll
    for (int i = 0; i < BN / 2; i++) acc.d[i] = 0;
}

PL_INLINE void to_floats(float (&f)[8], const ACC (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = (float)v[i];
}
// An accumulator's bits, to be sent.
PL_INLINE float bits(float v) { return v; }
PL_INLINE float bits(i32 v) { return __int_as_float(v); }

// Eight neighbours of a lane's upper or lower row, those that begin at `column_of(j)`.
PL_INLINE void eight_of(ACC (&v)[8], const Accumulators &acc, int j, int half, u32 lane) {
    ACC x[4][2];
#pragma unroll
    for (int b = 0; b < 4; b++) acc.pair(x[b], 4 * j + b, half);
#if RUN
#pragma unroll
    for (int b = 0; b < 4; b++) v[2 * b] = x[b][0], v[2 * b + 1] = x[b][1];
#else
    eight_of_quad(v, x, lane);
#endif
}

PL_INLINE i32 column_of(int j, u32 lane) {
    if (RUN == 16) return j / 2 * 64 + lane % 4 * 16 + j % 2 * 8;
    return 32 * j + lane % 4 * 8;
}

// Residuals that wait for their accumulators: of the vectors that a thread gives out.
struct Waiting {
#if RESIDUALS
    u32 tile;  // in shared memory
#elif SPLIT > 1
    uint4 residual[OWN_VECTORS];
#else
    uint4 residual[2][N_QUADS / EIGHTS];
#endif
};

// The way of a tile's accumulators to memory. `Where` tells the place of a row of the tile, and whether it exists:
// `Place where(i32 row, bool &there)`.
struct TileStore {
    const TileEpilogueArgs &epilogue;
    const Addresses &addresses;
    i32 n;                   // columns that exist
    u32 rank;                // of the block in its cluster
    u32 parts, gathered;     // where the parts of this block's rows arrive, and the barrier that counts them
    u32 lane;
    i32 row;                 // of this lane's vectors in the tile: this row and the one eight below it
    i32 tap_columns;         // of one tap
    const i64 *tap_places;   // where its outputs begin

    PL_INLINE TileStore(const TileEpilogueArgs &f, const Addresses &a, i32 n, u32 rank, u32 parts, u32 gathered, u32 warp, u32 lane,
                        i32 tap_columns = 0, const i64 *tap_places = 0)
        : epilogue(f), addresses(a), n(n), rank(rank), parts(parts), gathered(gathered), lane(lane), tap_columns(tap_columns),
          tap_places(tap_places) {
        row = warp / 4 * 64 + warp % 4 * 16 + lane / 4;
    }

    // Brings the residuals before the products begin.
    template <class Where> PL_INLINE void fetch(Waiting &waiting, const Where &where, i32 n0) const {
#if EARLY && !RESIDUALS && SPLIT > 1
#pragma unroll
        for (int i = 0; i < OWN_VECTORS; i++) {
            i32 v = threadIdx.x + i * N_CONSUMERS, own = v / (BN / 8), first = v % (BN / 8) * 8;
            bool there;
            Place place = where((i32)rank * OWN_ROWS + own, there);
            i32 count = own < OWN_ROWS && there ? n - n0 - first : 0;
            waiting.residual[i] = fetch_residual(epilogue, addresses, place, n0 + first, count);
        }
#elif EARLY && !RESIDUALS
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < N_QUADS; j += EIGHTS) {
                i32 at = n0 + column_of(j, lane);
                bool there;
                Place place = where(row + 8 * h, there);
                i32 count = there ? n - at : 0;
                uint4 &to = waiting.residual[h][j / EIGHTS];
                to = fetch_residual(epilogue, addresses, place, at, count);
#if RUN == 16
                uint4 upper = fetch_residual(epilogue, addresses, place, at + 8, count - 8);
                to.z = upper.x, to.w = upper.y;
#endif
            }
#endif
    }

    // Of them, those of eight columns.
    PL_INLINE uint4 residual(const Waiting &waiting, int h, int j) const {
#if RESIDUALS
        u32 at = waiting.tile + ((row + 8 * h) * BN + column_of(j, lane)) * sizeof(RES_T);
        float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
        if (RES_BYTES) asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
        else v = load_shared(at);
        return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w));
#elif SPLIT == 1
        uint4 v = waiting.residual[h][j / EIGHTS];
        if (RUN == 16 && j % 2) v.x = v.z, v.y = v.w;
        return v;
#else
        return make_uint4(0, 0, 0, 0);
#endif
    }

#if SPLIT > 1
    // `columns`: what fetch_columns brought of the tile's.
    template <class Where>
    PL_INLINE void give(const Accumulators &acc, const Waiting &waiting, const float *columns, const Where &where, i32 n0) const {
        cluster_wait();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            i32 of = row + 8 * h;
            u32 owner = of / OWN_ROWS;
            u32 to = cluster_address(parts + (rank * OWN_ROWS + of % OWN_ROWS) * PART_PITCH, owner);
            u32 bar = cluster_address(gathered, owner);
#pragma unroll
            for (int j = 0; j < N_QUADS; j++) {
                ACC v[8];
                eight_of(v, acc, j, h, lane);
                if (column_of(j, lane) >= BN) continue;
                u32 at = to + j * 128 + (lane % 4) * 16;
                cluster_send(at, bar, bits(v[0]), bits(v[1]), bits(v[2]), bits(v[3]));
                cluster_send(at + 64, bar, bits(v[4]), bits(v[5]), bits(v[6]), bits(v[7]));
            }
        }
        barrier_wait_cluster(gathered, 0);
#pragma unroll
        for (int i = 0; i < OWN_VECTORS; i++) {
            i32 at = threadIdx.x + i * N_CONSUMERS, own = at / (BN / 8), block = at % (BN / 8);
            if (own < OWN_ROWS) {
                ACC sum[8] = {};
#pragma unroll
                for (int r = 0; r < SPLIT; r++) {
                    u32 from = parts + (r * OWN_ROWS + own) * PART_PITCH + block / 4 * 128 + block % 4 * 16;
                    union { float4 words[2]; ACC each[8]; } u;
                    u.words[0] = load_shared(from), u.words[1] = load_shared(from + 64);
#pragma unroll
                    for (int k = 0; k < 8; k++) sum[k] += u.each[k];
                }
                float v[8];
                to_floats(v, sum);
                bool there;
                Place place = where((i32)rank * OWN_ROWS + own, there);
                i32 first = n0 + block * 8;
                epilogue_row(epilogue, addresses, v, Columns(epilogue, columns + block * 8), waiting.residual[i], place, first, there ? n - first : 0);
            }
        }
    }
#else
    template <class Where>
    PL_INLINE void give(const Accumulators &acc, const Waiting &waiting, const float *columns, const Where &where, i32 n0) const {
        bool there[2];
        Place place[2];
#pragma unroll
        for (int h = 0; h < 2; h++) place[h] = where(row + 8 * h, there[h]);
#pragma unroll
        for (int j = 0; j < N_QUADS; j += EIGHTS) {
            i32 column = column_of(j, lane);
            // Lanes exchange before some of them leave.
            float v[2][EIGHTS][8];
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < EIGHTS; e++) {
                    ACC sum[8];
                    eight_of(sum, acc, j + e, h, lane);
                    to_floats(v[h][e], sum);
                }
            if (column >= BN) continue;
#pragma unroll
            for (int e = 0; e < EIGHTS; e++) {
                const Columns own(epilogue, columns + column + 8 * e);
                i32 at = n0 + column + 8 * e;
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (there[h] && at < n) finish_row(epilogue, addresses, v[h][e], own, residual(waiting, h, j + e), place[h], at, n - at);
            }
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (there[h]) store(v[h], place[h], n0 + column);
        }
    }

    // What is finished of a row, from a column on.
    PL_INLINE void store(const float (&v)[EIGHTS][8], const Place &place, i32 at) const {
        if (at >= n) return;
        i32 left = n - at;
#if OUT_TAPS
        // Columns that are given out together are of one tap.
        i32 tap = at / tap_columns;
        at -= tap * tap_columns;
        Addresses to = addresses;
        to.out = (OUT_T *)addresses.out + tap_places[tap];
#else
        const Addresses &to = addresses;
#endif
#if RUN == 16
        // Sixteen columns exist or none of them.
        if (aligned16(to.out)) {
            uint2 low = eight_bytes(epilogue, v[0]), high = eight_bytes(epilogue, v[1]);
            *(uint4 *)((OUT_T *)to.out + view_row<OUT_T>(epilogue.out, place) + at) = make_uint4(low.x, low.y, high.x, high.y);
            return;
        }
#endif
#pragma unroll
        for (int e = 0; e < EIGHTS; e++)
            if (8 * e < left) store_row(epilogue, to, v[e], place, at + 8 * e, left - 8 * e);
    }
#endif
};

#endif
