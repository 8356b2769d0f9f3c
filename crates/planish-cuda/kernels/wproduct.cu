// Matrix products and convolutions on Hopper: one warp drives the tensor copy engine, warpgroups multiply.
//
// out[row][col] = sum over k of a[row][k] * b[col][k], then what wblock.cuh, which stands in front, finishes. For a
// convolution rows are output pixels (image, depth, height, width flattened), and k runs over filter taps and, within
// a tap, channels: the copy engine gathers the pixels of one tap (im2col maps) and fills padding with zeros.
//
// Set from outside, besides: KIND (0 matrix product, 1..3 spatial dimensions of a convolution), STAGES, SPLIT (blocks
// of a cluster that share one tile's k), MIN_BLOCKS (blocks of one multiprocessor that registers must allow),
// B_WEIGHT (b is written by no kernel).
//
// SPLIT > 1: each block sums its part of k, sends each row's share to the block that owns it, and the owner adds
// them in the order of their ranks, so results do not depend on timing.
//
// Launches may overlap: weights are fetched before the wait for the grids before this one.

#define N_GROUPS (BM / 64)
#define N_CONSUMERS (N_GROUPS * 128)
#define N_THREADS (N_CONSUMERS + 32)
#define A_BYTES (BM * BK * 2)
#define B_BYTES (BN * BK * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
// A row of partial sums is 64 bytes longer than needed: two neighbouring rows then lie in different banks.
#define PART_PITCH (BN * 4 + 64)
#define OWN_ROWS (BM / SPLIT)
#define PART_BYTES (SPLIT > 1 ? BM * PART_PITCH : 0)
// Of this tile and of the one before, which a slower warp may still be at.
#define BIAS_BYTES (2 * BN * 4)

struct Product {
    Finish finish;
    Places places;
    i32 m, n;
    i32 tiles_n;        // tiles along n
    i32 tiles;          // all of them
    i32 chunks;         // BK pieces of k
    i32 tap_chunks;     // of one tap
    i32 size[3];        // of the output: w, h, d
    i32 stride[3];
    i32 pad[3];
    i32 taps[3];
    i32 dilation[3];
};

#define ARGUMENTS const void *bias_from, const void *residual, EXTRA_ARGUMENTS void *out, void *unused
#if CONSTANT_BIAS
#define ADDRESSES {out, constant_bias, residual, {EXTRA_NAMES}}
#else
#define ADDRESSES {out, bias_from, residual, {EXTRA_NAMES}}
#endif

extern "C" __global__ void
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
__launch_bounds__(N_THREADS, MIN_BLOCKS)
wproduct(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, ARGUMENTS,
         const __grid_constant__ Product p) {
#if __CUDA_ARCH__ >= 900
    const Addresses addresses = ADDRESSES;
    extern __shared__ u8 raw[];
    // The swizzle goes by address bits, so stages begin at multiples of 1024 bytes.
    u32 base = (shared_address(raw) + 1023) & ~1023u;
    u32 parts = base + STAGES * STAGE_BYTES;
    u32 bias_at = parts + PART_BYTES;
    u32 full = bias_at + BIAS_BYTES, empty = full + 8 * STAGES, gathered = empty + 8 * STAGES;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0;
    u32 first_tile = blockIdx.x / SPLIT, n_workers = gridDim.x / SPLIT;

    let_next_begin();
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, N_GROUPS * 4);
        }
        if (SPLIT > 1) barrier_init(gathered, 1);
        barrier_init_fence();
        if (SPLIT > 1) barrier_expect(gathered, BM * BN * 4);
    }
    __syncthreads();
    if (SPLIT > 1) cluster_arrive();

    // This block's part of k.
    i32 chunk_from = (i32)((i64)p.chunks * rank / SPLIT), chunk_to = (i32)((i64)p.chunks * (rank + 1) / SPLIT);
    i32 n_chunks = chunk_to - chunk_from;

    if (warp == N_GROUPS * 4) {
        if (lane == 0) {
            map_prefetch(&map_a);
            map_prefetch(&map_b);
            i32 early = !B_WEIGHT ? 0 : n_chunks < STAGES ? n_chunks : STAGES;
            i32 done = 0;
            for (i32 tile = first_tile; tile < p.tiles; tile += n_workers) {
                i32 tile_m = tile / p.tiles_n, m0 = tile_m * BM, n0 = (tile - tile_m * p.tiles_n) * BN;
                i32 tap = chunk_from / p.tap_chunks, part = chunk_from - tap * p.tap_chunks;
                if (tile == first_tile) {
                    i32 t = tap, q = part;
#pragma unroll 1
                    for (i32 i = 0; i < early; i++) {
                        barrier_expect(full + 8 * i, STAGE_BYTES);
                        u32 to = base + i * STAGE_BYTES + A_BYTES;
                        if (KIND == 0) copy_tile2(to, &map_b, full + 8 * i, q * BK, n0);
                        else copy_tile3(to, &map_b, full + 8 * i, q * BK, t, n0);
                        if (++q == p.tap_chunks) q = 0, t++;
                    }
                    wait_for_inputs();
                }
                i32 w = 0, h = 0, d = 0, image = 0, tw = 0, th = 0, td = 0;
                if (KIND >= 1) {
                    i32 i = m0;
                    w = i % p.size[0], i /= p.size[0];
                    w = w * p.stride[0] - p.pad[0];
                    if (KIND >= 2) h = i % p.size[1], i /= p.size[1], h = h * p.stride[1] - p.pad[1];
                    if (KIND >= 3) d = i % p.size[2], i /= p.size[2], d = d * p.stride[2] - p.pad[2];
                    image = i;
                    i = tap;
                    tw = i % p.taps[0], i /= p.taps[0];
                    if (KIND >= 2) th = i % p.taps[1], i /= p.taps[1];
                    td = i;
                }
#pragma unroll 1
                for (i32 i = 0; i < n_chunks; i++, done++) {
                    i32 s = done % STAGES;
                    u32 bar = full + 8 * s, to = base + s * STAGE_BYTES;
                    if (done >= early) {
                        if (done >= STAGES) barrier_wait(empty + 8 * s, (done / STAGES - 1) & 1);
                        barrier_expect(bar, STAGE_BYTES);
                        if (KIND == 0) copy_tile2(to + A_BYTES, &map_b, bar, part * BK, n0);
                        else copy_tile3(to + A_BYTES, &map_b, bar, part * BK, tap, n0);
                    }
                    if (KIND == 0) copy_tile2(to, &map_a, bar, part * BK, m0);
                    if (KIND == 1) copy_pixels1(to, &map_a, bar, part * BK, w, image, tw * p.dilation[0]);
                    if (KIND == 2) copy_pixels2(to, &map_a, bar, part * BK, w, h, image, tw * p.dilation[0], th * p.dilation[1]);
                    if (KIND == 3)
                        copy_pixels3(to, &map_a, bar, part * BK, w, h, d, image, tw * p.dilation[0], th * p.dilation[1], td * p.dilation[2]);
                    if (++part == p.tap_chunks) {
                        part = 0, tap++;
                        if (++tw == p.taps[0]) {
                            tw = 0;
                            if (KIND >= 2 && ++th == p.taps[1]) th = 0, td++;
                        }
                    }
                }
            }
        }
        __syncwarp();
        if (SPLIT > 1) cluster_wait();
        return;
    }

    u32 group = warp / 4;
    // Where this lane's vectors of eight columns lie after the transpose.
    i32 lane_row = (warp % 4) * 16 + lane / 4, lane_col = (lane % 4) * 8;
    i32 done = 0;
    u32 turn = 0;
    for (i32 tile = first_tile; tile < p.tiles; tile += n_workers, turn ^= 1) {
        i32 tile_m = tile / p.tiles_n, m0 = tile_m * BM, n0 = (tile - tile_m * p.tiles_n) * BN;
        float *bias = (float *)__cvta_shared_to_generic(bias_at) + turn * BN;
        fetch_bias<N_CONSUMERS>(bias, addresses.bias, n0, p.n, threadIdx.x);
        if (tile == first_tile) wait_for_inputs();

#if SPLIT > 1
        const int n_vectors = (OWN_ROWS * (BN / 8) + N_CONSUMERS - 1) / N_CONSUMERS;
        uint4 residual[n_vectors];
#pragma unroll
        for (int i = 0; i < n_vectors; i++) {
            i32 v = threadIdx.x + i * N_CONSUMERS, row = v / (BN / 8), col = v % (BN / 8) * 8;
            i32 m = m0 + (i32)rank * OWN_ROWS + row;
            residual[i] = fetch_residual(p.finish, addresses, place_of(p.places, m), n0 + col,
                                         row < OWN_ROWS && m < p.m ? p.n - n0 - col : 0);
        }
#elif EARLY
        uint4 residual[2][(BN + 31) / 32];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < (BN + 31) / 32; j++) {
                i32 m = m0 + (i32)group * 64 + lane_row + 8 * h, n = n0 + 32 * j + lane_col;
                residual[h][j] = fetch_residual(p.finish, addresses, place_of(p.places, m), n, m < p.m ? p.n - n : 0);
            }
#endif

        Sums sums;
#pragma unroll
        for (int i = 0; i < BN / 2; i++) sums.d[i] = 0.f;
#pragma unroll 1
        for (i32 i = 0; i < n_chunks; i++, done++) {
            i32 s = done % STAGES;
            barrier_wait(full + 8 * s, (done / STAGES) & 1);
            u32 at = base + s * STAGE_BYTES;
            u64 a = matrix_descriptor(at + group * 64 * BK * 2, BK * 2), b = matrix_descriptor(at + A_BYTES, BK * 2);
            product_fence();
#pragma unroll
            for (int k = 0; k < BK / 16; k++) warpgroup_product(sums, a + 2 * k, b + 2 * k);
            product_commit();
            product_wait<1>();
            // Only now is the piece before this one surely read.
            if (i > 0 && lane == 0) barrier_arrive(empty + 8 * ((done - 1) % STAGES));
        }
        product_wait<0>();
        if (n_chunks > 0 && lane == 0) barrier_arrive(empty + 8 * ((done - 1) % STAGES));
        asm volatile("bar.sync 1, %0;" ::"n"(N_CONSUMERS) : "memory");

#if SPLIT > 1
        cluster_wait();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            i32 row = group * 64 + lane_row + 8 * h;
            u32 owner = row / OWN_ROWS;
            u32 to = cluster_address(parts + (rank * OWN_ROWS + row % OWN_ROWS) * PART_PITCH, owner);
            u32 bar = cluster_address(gathered, owner);
#pragma unroll
            for (int j = 0; j < (BN + 31) / 32; j++) {
                float x[4][2];
#pragma unroll
                for (int b = 0; b < 4; b++) sums.pair(x[b], 4 * j + b, h);
                transpose_quad(x, lane);
                if (32 * j + lane_col >= BN) continue;
                u32 at = to + j * 128 + (lane % 4) * 16;
                cluster_send(at, bar, x[0][0], x[0][1], x[1][0], x[1][1]);
                cluster_send(at + 64, bar, x[2][0], x[2][1], x[3][0], x[3][1]);
            }
        }
        barrier_wait_cluster(gathered, 0);
#pragma unroll
        for (int i = 0; i < n_vectors; i++) {
            i32 at = threadIdx.x + i * N_CONSUMERS, row = at / (BN / 8), block = at % (BN / 8);
            if (row < OWN_ROWS) {
                float v[8] = {};
#pragma unroll
                for (int r = 0; r < SPLIT; r++) {
                    u32 from = parts + (r * OWN_ROWS + row) * PART_PITCH + block / 4 * 128 + block % 4 * 16;
                    float4 x = load_shared(from), y = load_shared(from + 64);
                    v[0] += x.x, v[1] += x.y, v[2] += x.z, v[3] += x.w, v[4] += y.x, v[5] += y.y, v[6] += y.z, v[7] += y.w;
                }
                i32 m = m0 + (i32)rank * OWN_ROWS + row, n = n0 + block * 8;
                finish_row(p.finish, addresses, v, bias + block * 8, residual[i], place_of(p.places, m), n, m < p.m ? p.n - n : 0);
            }
        }
#else
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int j = 0; j < (BN + 31) / 32; j++) {
                float x[4][2];
#pragma unroll
                for (int b = 0; b < 4; b++) sums.pair(x[b], 4 * j + b, h);
                transpose_quad(x, lane);
                if (32 * j + lane_col >= BN) continue;
                float v[8] = {x[0][0], x[0][1], x[1][0], x[1][1], x[2][0], x[2][1], x[3][0], x[3][1]};
                i32 m = m0 + (i32)group * 64 + lane_row + 8 * h, n = n0 + 32 * j + lane_col;
                i32 count = m < p.m ? p.n - n : 0;
                Place at = place_of(p.places, m);
#if EARLY
                uint4 r = residual[h][j];
#else
                uint4 r = make_uint4(0, 0, 0, 0);
#endif
                finish_row(p.finish, addresses, v, bias + 32 * j + lane_col, r, at, n, count);
            }
        }
#endif
    }
#endif
}
