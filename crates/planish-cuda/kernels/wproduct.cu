// Matrix products and convolutions on Hopper: one warp drives TMA, warpgroups multiply.
//
// out[row][col] = sum over k of a[row][k] * b[col][k], finished as wtile.cuh, which stands in front, says. For a
// convolution rows are output pixels (image, depth, height, width flattened), and k runs over filter taps and, within
// a tap, channels: TMA gathers the pixels of one tap (im2col maps) and fills padding with zeros.
//
// Set from outside, besides: KIND (0 matrix product, 1..3 spatial dimensions of a convolution), STAGES, B_WEIGHT (b
// is written by no kernel).
//
// Launches may overlap: weights are fetched before the wait for the grids before this one.

#if RESIDUALS
#define RESIDUAL_MAP const __grid_constant__ TensorMap map_r,
#else
#define RESIDUAL_MAP
#endif
#if OUT_TAPS
#define TAP_COLUMNS , p.tap_columns
#define TAP_PLACES , p.out_taps
#else
#define TAP_COLUMNS
#define TAP_PLACES
#endif
#define A_BYTES (BM * BK * 2)
#define B_BYTES (BN * BK * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
// Bias and scales of these columns and of those before, which a slower warp may still be at.
#define COLUMN_BYTES (2 * BN * 4 * COLUMN_FLOATS)

PL_INLINE Place place_of(const Places &p, i32 row) {
    Place at;
    at.m = row;
    at.q[0] = at.q[1] = at.q[2] = at.q[3] = 0;
    if (p.wanted) {
        u32 rest = row;
#pragma unroll
        for (int axis = 3; axis > 0; axis--) {
            at.q[axis] = rest % (u32)p.size[axis];
            rest /= (u32)p.size[axis];
        }
        at.q[0] = rest;
    }
    return at;
}

#if __CUDA_ARCH__ >= 900
// A piece of b: of one tap, from a chunk of it on.
PL_INLINE void copy_b(u32 to, const TensorMap *map, u32 bar, i32 chunk, i32 tap, i32 n0, i32 tap_chunks) {
    if (RUN) copy_tile5(to, map, bar, (tap * tap_chunks + chunk) * BK, 0, 0, 0, n0 / RUN_GROUP);
    else if (KIND == 0) copy_tile2(to, map, bar, chunk * BK, n0);
    else copy_tile3(to, map, bar, chunk * BK, tap, n0);
}
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(N_THREADS, MIN_BLOCKS)
wproduct(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, RESIDUAL_MAP EPILOGUE_ARGUMENTS,
         const __grid_constant__ WProductArgs p) {
#if __CUDA_ARCH__ >= 900
    const Addresses addresses = EPILOGUE_ADDRESSES;
    extern __shared__ u8 raw[];
    u32 base = first_stage(raw);
    u32 residuals_at = base + STAGES * STAGE_BYTES;
    u32 sums_at = residuals_at + RESIDUALS * RESIDUAL_BYTES;
    u32 columns_at = sums_at + PART_BYTES;
    const Ring<STAGES> stages(columns_at + COLUMN_BYTES);
    const Ring<RESIDUALS> residuals(columns_at + COLUMN_BYTES + stages.BYTES);
    u32 gathered = columns_at + COLUMN_BYTES + stages.BYTES + residuals.BYTES;
    u32 warp = warp_index(), lane = threadIdx.x % 32;
    u32 rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0;
    u32 first_tile = blockIdx.x / SPLIT, n_workers = gridDim.x / SPLIT;
    begin_block(gathered, stages, residuals);

    // This block's part of k.
    i32 chunk_from = (i32)((i64)p.chunks * rank / SPLIT), chunk_to = (i32)((i64)p.chunks * (rank + 1) / SPLIT);
    i32 n_chunks = chunk_to - chunk_from;

    if (warp == N_GROUPS * 4) {
        if (lane == 0) {
            map_prefetch(&map_a);
            map_prefetch(&map_b);
            i32 early = !B_WEIGHT ? 0 : n_chunks < STAGES ? n_chunks : STAGES;
            i32 done = 0, n_tiles = 0;
            for (i32 tile = first_tile; tile < p.tiles; tile += n_workers, n_tiles++) {
                i32 tile_m = tile / p.tiles_n, m0 = tile_m * BM, n0 = (tile - tile_m * p.tiles_n) * BN;
                i32 tap = chunk_from / p.tap_chunks, part = chunk_from - tap * p.tap_chunks;
                if (tile == first_tile) {
                    i32 t = tap, q = part;
#pragma unroll 1
                    for (i32 i = 0; i < early; i++) {
                        barrier_expect(stages.full + 8 * i, STAGE_BYTES);
                        u32 to = base + i * STAGE_BYTES + A_BYTES;
                        copy_b(to, &map_b, stages.full + 8 * i, q, t, n0, p.tap_chunks);
                        if (++q == p.tap_chunks) q = 0, t++;
                    }
                    wait_for_inputs();
                }
#if RESIDUALS
                residuals.wait_empty(n_tiles);
                u32 arrives = residuals.full + 8 * (n_tiles % RESIDUALS);
                barrier_expect(arrives, RESIDUAL_BYTES);
                copy_tile2(residuals_at + n_tiles % RESIDUALS * RESIDUAL_BYTES, &map_r, arrives, n0, m0);
#endif
                i32 w = 0, h = 0, d = 0, image = 0, tw = 0, th = 0, td = 0;
                if (KIND >= 1) {
                    i32 i = m0;
                    w = i % p.window.size[0], i /= p.window.size[0];
                    w = w * p.window.stride[0] - p.window.pad[0];
                    if (KIND >= 2) h = i % p.window.size[1], i /= p.window.size[1], h = h * p.window.stride[1] - p.window.pad[1];
                    if (KIND >= 3) d = i % p.window.size[2], i /= p.window.size[2], d = d * p.window.stride[2] - p.window.pad[2];
                    image = i;
                    i = tap;
                    tw = i % p.window.taps[0], i /= p.window.taps[0];
                    if (KIND >= 2) th = i % p.window.taps[1], i /= p.window.taps[1];
                    td = i;
                }
#pragma unroll 1
                for (i32 i = 0; i < n_chunks; i++, done++) {
                    i32 s = done % STAGES;
                    u32 bar = stages.full + 8 * s, to = base + s * STAGE_BYTES;
                    if (done >= early) {
                        stages.wait_empty(done);
                        barrier_expect(bar, STAGE_BYTES);
                        copy_b(to + A_BYTES, &map_b, bar, part, tap, n0, p.tap_chunks);
                    }
                    if (KIND == 0) copy_tile2(to, &map_a, bar, part * BK, m0);
                    if (KIND == 1) copy_pixels1(to, &map_a, bar, part * BK, w, image, tw * p.window.dilation[0]);
                    if (KIND == 2) copy_pixels2(to, &map_a, bar, part * BK, w, h, image, tw * p.window.dilation[0], th * p.window.dilation[1]);
                    if (KIND == 3)
                        copy_pixels3(to, &map_a, bar, part * BK, w, h, d, image, tw * p.window.dilation[0], th * p.window.dilation[1], td * p.window.dilation[2]);
                    if (++part == p.tap_chunks) {
                        part = 0, tap++;
                        if (++tw == p.window.taps[0]) {
                            tw = 0;
                            if (KIND >= 2 && ++th == p.window.taps[1]) th = 0, td++;
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
    i32 done = 0, n_tiles = 0, columns_of = -1;
    float *const first_columns = (float *)__cvta_shared_to_generic(columns_at), *columns = first_columns;
    for (i32 tile = first_tile; tile < p.tiles; tile += n_workers, n_tiles++) {
        i32 tile_m = tile / p.tiles_n, m0 = tile_m * BM, n0 = (tile - tile_m * p.tiles_n) * BN;
        const bool other_columns = n0 != columns_of;
        if (other_columns) {
            if (columns_of >= 0) columns = columns == first_columns ? first_columns + BN * COLUMN_FLOATS : first_columns;
            fetch_columns<N_CONSUMERS>(columns, p.epilogue, addresses, n0, p.n, threadIdx.x TAP_COLUMNS);
            columns_of = n0;
        }
        if (tile == first_tile) wait_for_inputs();
        auto where = [&](i32 row, bool &there) {
            there = m0 + row < p.m;
            return place_of(p.places, m0 + row);
        };
        const TileStore store(p.epilogue, addresses, p.n, rank, sums_at, gathered, warp, lane TAP_COLUMNS TAP_PLACES);
        Waiting waiting;
#if RESIDUALS
        waiting.tile = residuals_at + n_tiles % RESIDUALS * RESIDUAL_BYTES;
#endif
        store.fetch(waiting, where, n0);

        Accumulators acc;
        clear(acc);
#pragma unroll 1
        for (i32 i = 0; i < n_chunks; i++, done++) {
            stages.wait_full(done);
            u32 at = base + done % STAGES * STAGE_BYTES;
            u64 a = matrix_descriptor(at + group * 64 * BK * 2, BK * 2), b = matrix_descriptor(at + A_BYTES, BK * 2);
            product_fence();
#pragma unroll
            for (int k = 0; k < BK / 16; k++) warpgroup_product(acc, a + 2 * k, b + 2 * k);
            product_commit();
            product_wait<1>();
            // Only now is the piece before this one surely read.
            if (i > 0 && lane == 0) stages.release(done - 1);
        }
        product_wait<0>();
        if (n_chunks > 0 && lane == 0) stages.release(done - 1);
        if (other_columns) consumers_meet();
#if RESIDUALS
        residuals.wait_full(n_tiles);
#endif
        store.give(acc, waiting, columns, where, n0);
#if RESIDUALS
        __syncwarp();
        if (lane == 0) residuals.release(n_tiles);
#endif
    }
#endif
}
