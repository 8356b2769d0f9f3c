// A stage of a network as phases of one kernel: PHASES 3x3 convolutions of stride 1 over one image of SIDE by SIDE pixels
// and CHANNELS channels, every second one with the input of the one before it as residual. whalo.cu's text stands in
// front, with the tile of the tactic that computes one such convolution; sums are taken in its order.
//
// Set from outside, besides what whalo.cu asks for:
//   SIDE CHANNELS   the image; a block has one piece of 8 by 8 pixels, BN columns, and 64 channels of the sum
//   PHASES          1: one convolution, to be launched after the others; up to 4
//   SYNC            how a phase waits for the one before: 0 a counter, 1 flags of all blocks, 2 flags of the blocks that
//                   write what it reads. 3, with one phase: it waits for those flags of the kernel before it instead of
//                   that kernel's end, and for its end only before it writes
//   SUMS            so many sums of each element, to which products go in turn: one need not wait for the one before
//   LEAVE           what is left out to see what it costs: 1 weights, 2 image, 4 products, 8 the sums of other blocks,
//                   16 stores
//
// Weights of the next phase come while this one runs: they depend on nothing.

#define TILES ((SIDE + 7) / 8)
#define COLUMNS (CHANNELS / BN)
#define N_BLOCKS (TILES * TILES * COLUMNS * SPLIT)
#define IMAGE (SIDE * SIDE * CHANNELS)
#define SLOTS (PHASES > 1 ? 2 : 1)
#define PIECE_BYTES (10 * 10 * 128)
#define PIECE_PITCH 13312
// Three taps, a row of the window.
#define ROW_STAGES 3
#define WEIGHT_BYTES (3 * BN * 128)
#define SUM_BYTES (SPLIT > 1 ? 64 * PART_PITCH : 0)
#define HAS(part) (!(LEAVE & (part)))
#define CHAINED (SYNC == 3)

PL_INLINE u32 load_acquire(const u32 *at) {
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}
PL_INLINE void store_release(u32 *at, u32 v) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory"); }
PL_INLINE void add_release(u32 *at) { asm volatile("red.add.release.gpu.global.u32 [%0], 1;" ::"l"(at) : "memory"); }
PL_INLINE void await(const u32 *at, u32 wanted) { while ((i32)(load_acquire(at) - wanted) < 0) {} }
// What ordinary stores wrote is read by TMA next.
PL_INLINE void fence_for_tma() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// The whole warp waits until the phases before are done. `flags`: one of each block, then the counter.
PL_INLINE void await_phase(const u32 *flags, u32 turn, i32 tile, u32 rank, u32 lane) {
#if SYNC == 0
    if (lane == 0) await(flags + N_BLOCKS, turn * N_BLOCKS);
#elif SYNC == 1
    for (i32 i = lane; i < N_BLOCKS; i += 32) await(flags + i, turn);
#else
    // The block's channels were written by 64 / BN columns of blocks, for this piece and those around it.
    const i32 wide = 64 / BN;
    for (i32 i = lane; i < 9 * wide * SPLIT; i += 32) {
        i32 near = i / (wide * SPLIT), x = tile % TILES + near % 3 - 1, y = tile / TILES + near / 3 - 1;
        if (x < 0 || x >= TILES || y < 0 || y >= TILES) continue;
        await(flags + ((y * TILES + x) * COLUMNS + rank * wide + i / SPLIT % wide) * SPLIT + i % SPLIT, turn);
    }
#endif
    __syncwarp();
}

// Where the block's flag stands before the first phase. Nobody goes on before all have read it.
PL_INLINE u32 own_turn(const u32 *flags) {
    u32 turn = 0;
    if (PHASES > 1 || CHAINED) {
        turn = load_acquire(flags + blockIdx.x);
        asm volatile("bar.sync 2, 160;" ::: "memory");
    }
    return turn;
}

#define MAPS                                                                                                         \
    const __grid_constant__ TensorMap a0, const __grid_constant__ TensorMap a1, const __grid_constant__ TensorMap a2, \
        const __grid_constant__ TensorMap a3, const __grid_constant__ TensorMap b0, const __grid_constant__ TensorMap b1, \
        const __grid_constant__ TensorMap b2, const __grid_constant__ TensorMap b3

// `activations`: the input, then what each phase writes; `first` is the place of this kernel's first phase among them.
// `before`: with SYNC 3 the flags of the kernel before, null for the first.
extern "C" __global__ void
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
__launch_bounds__(160, 1) stage(MAPS, const f16 *biases, f16 *activations, u32 *flags, const u32 *before, i32 first) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ u8 raw[];
    u32 base = (shared_address(raw) + 1023) & ~1023u;
    u32 weights = base + SLOTS * PIECE_PITCH;
    u32 parts = weights + SLOTS * ROW_STAGES * WEIGHT_BYTES;
    u32 bias_at = parts + SLOTS * SUM_BYTES;
    u32 full_a = bias_at + SLOTS * BN * 4, empty_a = full_a + 8 * SLOTS, gathered = empty_a + 8 * SLOTS;
    u32 full_b = gathered + 8 * SLOTS, empty_b = full_b + 8 * SLOTS * ROW_STAGES;
    u32 warp = warp_index(), lane = threadIdx.x % 32;
    u32 rank = blockIdx.x % SPLIT;
    i32 worker = blockIdx.x / SPLIT, n0 = worker % COLUMNS * BN, tile = worker / COLUMNS;
    i32 x0 = tile % TILES * 8, y0 = tile / TILES * 8;

    let_next_begin();
    if (threadIdx.x == 0) {
        for (int s = 0; s < SLOTS; s++) {
            barrier_init(full_a + 8 * s, 1);
            barrier_init(empty_a + 8 * s, 4);
            barrier_init(gathered + 8 * s, 1);
        }
        for (int s = 0; s < SLOTS * ROW_STAGES; s++) {
            barrier_init(full_b + 8 * s, 1);
            barrier_init(empty_b + 8 * s, 4);
        }
        barrier_init_fence();
        if (SPLIT > 1 && HAS(8))
            for (int s = 0; s < SLOTS; s++) barrier_expect(gathered + 8 * s, 64 * BN * 4);
    }
    __syncthreads();
    if (SPLIT > 1) cluster_arrive();

    if (warp == 4) {
        auto map_a = [&](i32 p) { return p == 0 ? &a0 : p == 1 ? &a1 : p == 2 ? &a2 : &a3; };
        auto map_b = [&](i32 p) { return p == 0 ? &b0 : p == 1 ? &b1 : p == 2 ? &b2 : &b3; };
        auto fetch_weights = [&](i32 p) {
            const TensorMap *map = map_b(p);
#pragma unroll 1
            for (i32 i = 0; i < ROW_STAGES; i++) {
                i32 s = p % SLOTS * ROW_STAGES + i;
                if (p >= SLOTS) barrier_wait(empty_b + 8 * s, (p / SLOTS - 1) & 1);
                barrier_expect(full_b + 8 * s, WEIGHT_BYTES);
                copy_tile3(weights + s * WEIGHT_BYTES, map, full_b + 8 * s, rank * 64, n0, i * 3);
            }
        };
        if (lane == 0) {
            for (i32 p = 0; p < PHASES; p++) map_prefetch(map_a(p)), map_prefetch(map_b(p));
            if (HAS(1))
                for (i32 p = 0; p < SLOTS; p++) fetch_weights(p);
        }
        __syncwarp();
        u32 turn = 0;
        if (CHAINED) turn = own_turn(flags);
        if (CHAINED && before) {
            await_phase(before, turn + 1, tile, rank, lane);
            fence_for_tma();
        } else {
            wait_for_inputs();
        }
        if (!CHAINED) turn = own_turn(flags);
#pragma unroll 1
        for (i32 p = 0; p < PHASES; p++) {
            if (p > 0) {
                await_phase(flags, turn + p, tile, rank, lane);
                fence_for_tma();
            }
            if (lane == 0) {
                i32 s = p % SLOTS;
                if (HAS(2)) {
                    if (p >= SLOTS) barrier_wait(empty_a + 8 * s, (p / SLOTS - 1) & 1);
                    barrier_expect(full_a + 8 * s, PIECE_BYTES);
                    copy_tile4(base + s * PIECE_PITCH, map_a(p), full_a + 8 * s, rank * 64, x0 - 1, y0 - 1, 0);
                }
                if (HAS(1) && p > 0 && p + 1 < PHASES) fetch_weights(p + 1);
            }
            __syncwarp();
        }
        if (SPLIT > 1) cluster_wait();
        return;
    }

    TileEpilogueArgs epilogue;
    epilogue.out.linear = epilogue.out.wide = epilogue.residual.linear = epilogue.residual.wide = 1;
    epilogue.out.s[3] = epilogue.residual.s[3] = CHANNELS;
    epilogue.out.c = epilogue.residual.c = 1;
    epilogue.lo = 0.f, epilogue.hi = __int_as_float(0x7f800000);
    // The place of one of the piece's rows, and how many columns it has from one on.
    auto place = [&](i32 row, i32 n, i32 &count) {
        i32 x = x0 + row % 8, y = y0 + row / 8;
        count = x < SIDE && y < SIDE ? CHANNELS - n : 0;
        Place at;
        at.m = y * SIDE + x;
        return at;
    };
    i32 lane_row = warp * 16 + lane / 4, lane_col = lane % 4 * 8;
    u32 turn = 0;
#pragma unroll 1
    for (i32 p = 0; p < PHASES; p++) {
        i32 s = p % SLOTS, layer = first + p;
        u32 parity = p / SLOTS & 1;
        float *bias = (float *)__cvta_shared_to_generic(bias_at) + s * BN;
        fetch_bias<128>(bias, biases + layer * CHANNELS, n0, CHANNELS, threadIdx.x);
        asm volatile("bar.sync 1, 128;" ::: "memory");
        if (p == 0) {
            if (!CHAINED) wait_for_inputs();
            turn = own_turn(flags);
        }
        // The residual is there when the image is.
        if (CHAINED && HAS(2)) barrier_wait(full_a + 8 * s, parity);
        const bool adds = layer % 2;
        // The rows that this block finishes are those that it finished two phases before.
        Addresses addresses = {};
        addresses.residual = activations + (i64)(layer - 1) * IMAGE;
        addresses.out = activations + (i64)(layer + 1) * IMAGE;
#if SPLIT > 1
        const int n_vectors = (64 / SPLIT * (BN / 8) + 127) / 128;
        uint4 residual[n_vectors];
#pragma unroll
        for (int i = 0; i < n_vectors; i++) {
            i32 v = threadIdx.x + i * 128, row = v / (BN / 8), n = n0 + v % (BN / 8) * 8, count;
            Place at = place((i32)rank * (64 / SPLIT) + row, n, count);
            residual[i] = fetch_residual(epilogue, addresses, at, n, adds && row < 64 / SPLIT ? count : 0);
        }
#else
        uint4 residual[2][(BN + 31) / 32];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < (BN + 31) / 32; j++) {
                i32 n = n0 + 32 * j + lane_col, count;
                Place at = place(lane_row + 8 * h, n, count);
                residual[h][j] = fetch_residual(epilogue, addresses, at, n, adds ? count : 0);
            }
#endif
        Sums each[SUMS];
        Sums &sums = each[0];
#pragma unroll
        for (int chain = 0; chain < SUMS; chain++)
#pragma unroll
            for (int i = 0; i < BN / 2; i++) each[chain].d[i] = 0.f;
        if (!CHAINED && HAS(2)) barrier_wait(full_a + 8 * s, parity);
        u64 a = matrix_descriptor(base + s * PIECE_PITCH, 128, 10 * 128);
#pragma unroll 1
        for (i32 row = 0; row < ROW_STAGES; row++) {
            i32 stage = s * ROW_STAGES + row;
            if (HAS(1)) barrier_wait(full_b + 8 * stage, parity);
            u64 b = matrix_descriptor(weights + stage * WEIGHT_BYTES, 128);
            u64 from = a + (u64)(row * 10 * (128 / 16));
#if !(LEAVE & 4)
            product_fence();
#pragma unroll
            for (int tap = 0; tap < 3; tap++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    warpgroup_product(each[(tap * 4 + k) % SUMS], from + (u64)(tap * (128 / 16) + 2 * k), b + (u64)(tap * (BN * 128 / 16) + 2 * k));
            product_commit();
#endif
        }
        product_wait<0>();
#pragma unroll
        for (int chain = 1; chain < SUMS; chain++)
#pragma unroll
            for (int i = 0; i < BN / 2; i++) sums.d[i] += each[chain].d[i];
        // Never true: without a reader of the sums their products would be left out too.
        if (LEAVE && first < 0)
#pragma unroll
            for (int i = 0; i < BN / 2; i++) ((float *)activations)[i * 128 + threadIdx.x] = sums.d[i];
        // Others may still read what lies where this kernel writes.
        if (CHAINED) wait_for_inputs();
        if (lane == 0 && p + SLOTS < PHASES) {
            barrier_arrive(empty_a + 8 * s);
            for (int row = 0; row < ROW_STAGES; row++) barrier_arrive(empty_b + 8 * (s * ROW_STAGES + row));
        }
#if SPLIT > 1
        if (p == 0) cluster_wait();
        u32 part = parts + s * SUM_BYTES;
        if (HAS(8)) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                i32 row = lane_row + 8 * h;
                u32 owner = row / (64 / SPLIT);
                u32 to = cluster_address(part + (rank * (64 / SPLIT) + row % (64 / SPLIT)) * PART_PITCH, owner);
                u32 bar = cluster_address(gathered + 8 * s, owner);
#pragma unroll
                for (int j = 0; j < (BN + 31) / 32; j++) {
                    float x[4][2];
#pragma unroll
                    for (int b = 0; b < 4; b++) sums.pair(x[b], 4 * j + b, h);
                    transpose_quad(x, lane);
                    u32 at = to + j * 128 + (lane % 4) * 16;
                    cluster_send(at, bar, x[0][0], x[0][1], x[1][0], x[1][1]);
                    cluster_send(at + 64, bar, x[2][0], x[2][1], x[3][0], x[3][1]);
                }
            }
            barrier_wait_cluster(gathered + 8 * s, parity);
        }
#pragma unroll
        for (int i = 0; i < n_vectors; i++) {
            i32 v = threadIdx.x + i * 128, row = v / (BN / 8), block = v % (BN / 8), n = n0 + block * 8, count;
            if (row >= 64 / SPLIT) continue;
            float sum[8] = {};
#pragma unroll
            for (int r = 0; r < SPLIT; r++) {
                u32 at = part + (r * (64 / SPLIT) + row) * PART_PITCH + block / 4 * 128 + block % 4 * 16;
                float4 x = load_shared(at), y = load_shared(at + 64);
                sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w, sum[4] += y.x, sum[5] += y.y, sum[6] += y.z, sum[7] += y.w;
            }
            Place at = place((i32)rank * (64 / SPLIT) + row, n, count);
            epilogue_row(epilogue, addresses, sum, Columns(epilogue, bias + block * 8), residual[i], at, n, HAS(16) ? count : 0);
        }
#else
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < (BN + 31) / 32; j++) {
                float x[4][2];
#pragma unroll
                for (int b = 0; b < 4; b++) sums.pair(x[b], 4 * j + b, h);
                transpose_quad(x, lane);
                float v[8] = {x[0][0], x[0][1], x[1][0], x[1][1], x[2][0], x[2][1], x[3][0], x[3][1]};
                i32 n = n0 + 32 * j + lane_col, count;
                Place at = place(lane_row + 8 * h, n, count);
                epilogue_row(epilogue, addresses, v, Columns(epilogue, bias + 32 * j + lane_col), residual[h][j], at, n, HAS(16) ? count : 0);
            }
#endif
        if (p + 1 < PHASES || CHAINED) {
            fence_for_tma();
            asm volatile("bar.sync 1, 128;" ::: "memory");
            if (threadIdx.x == 0) {
                if (SPLIT > 1 && HAS(8) && p + SLOTS < PHASES) barrier_expect(gathered + 8 * s, 64 * BN * 4);
                if (SYNC == 0) {
                    add_release(flags + N_BLOCKS);
                    // For the next launch; all have read this one's before the last phase.
                    if (p + 2 == PHASES) store_release(flags + blockIdx.x, turn + PHASES - 1);
                } else {
                    store_release(flags + blockIdx.x, turn + p + 1);
                }
            }
        }
    }
#endif
}
