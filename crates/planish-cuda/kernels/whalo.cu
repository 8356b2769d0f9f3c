// Convolutions of stride 1 on Hopper whose windows overlap: TMA brings each block's piece of the image once,
// with the rim that windows reach over, and every tap multiplies the same piece from another place.
//
// A warpgroup's 64 rows are 8 by 8 pixels: eight neighbours along x lie together as the products want them, and
// going down a row of the piece is the step from one group of eight to the next. Swizzling goes by address bits, so
// a tap's matrix may begin at any pixel. What lies outside the image is filled with zeros by TMA.
//
// Set from outside, besides what wtile.cuh, which stands in front, asks for:
//   KIND            2 or 3 spatial dimensions
//   GX GY GZ        warpgroups along x, y, z; BM is 64 times their product
//   TX TY TZ        taps
//   SA              pieces of the image in flight
//   TB SB           taps of one stage of weights (TX or 1), and stages
//   RESIDENT        1: all weights that a block needs stay in shared memory
//
// Weights are fetched before the wait for the grids before this one.

#define ROW_BYTES (BK * 2)
#define HX (8 * GX + TX - 1)
#define HY (8 * GY + TY - 1)
#define HZ (GZ + TZ - 1)
#define A_BYTES (HX * HY * HZ * ROW_BYTES)
#define A_PITCH ((A_BYTES + 1023) / 1024 * 1024)
#define B_BYTES (TB * BN * ROW_BYTES)
#define N_TAPS (TX * TY * TZ)
#define N_PARTS (N_TAPS / TB)
#define COLUMN_BYTES (BN * 4 * COLUMN_FLOATS)

// Where a piece begins.
struct Piece { i32 x, y, z, image; };

PL_INLINE Piece piece_of(const WHaloArgs &p, i32 tile) {
    Piece at;
    i32 rest = tile;
    at.x = rest % p.tiles_of[0] * (8 * GX), rest /= p.tiles_of[0];
    at.y = rest % p.tiles_of[1] * (8 * GY), rest /= p.tiles_of[1];
    at.z = 0;
    if (KIND == 3) at.z = rest % p.tiles_of[2] * GZ, rest /= p.tiles_of[2];
    at.image = rest;
    return at;
}

// The place of one of a tile's rows, and whether it is in the image.
PL_INLINE Place place_in(const WHaloArgs &p, const Piece &piece, i32 row, bool &there) {
    i32 group = row / 64;
    i32 x = piece.x + group % GX * 8 + row % 8;
    i32 y = piece.y + group / GX % GY * 8 + row / 8 % 8, z = piece.z + group / (GX * GY);
    Place at;
    at.q[0] = piece.image, at.q[1] = z, at.q[2] = y, at.q[3] = x;
    at.m = ((piece.image * p.size[2] + z) * p.size[1] + y) * p.size[0] + x;
    there = x < p.size[0] && y < p.size[1] && z < p.size[2];
    return at;
}

#if __CUDA_ARCH__ >= 900
// A stage of weights: some taps of a chunk.
PL_INLINE void copy_weights(u32 to, const TensorMap *map, u32 bar, i32 chunk, i32 tap, i32 n0, i32 chunks) {
#if RUN
#pragma unroll
    for (int i = 0; i < TB; i++)
        copy_tile5(to + i * BN * ROW_BYTES, map, bar, ((tap + i) * chunks + chunk) * BK, 0, 0, 0, n0 / RUN_GROUP);
#else
    copy_tile3(to, map, bar, chunk * BK, n0, tap);
#endif
}
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(N_THREADS, MIN_BLOCKS)
whalo(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, EPILOGUE_ARGUMENTS,
      const __grid_constant__ WHaloArgs p) {
#if __CUDA_ARCH__ >= 900
    const Addresses addresses = EPILOGUE_ADDRESSES;
    extern __shared__ u8 raw[];
    u32 base = first_stage(raw);
    u32 weights = base + SA * A_PITCH;
    u32 sums_at = weights + SB * B_BYTES;
    u32 columns_at = sums_at + PART_BYTES;
    const Ring<SA> images(columns_at + COLUMN_BYTES);
    const Ring<SB> filters(columns_at + COLUMN_BYTES + images.BYTES);
    u32 gathered = columns_at + COLUMN_BYTES + images.BYTES + filters.BYTES;
    u32 warp = warp_index(), lane = threadIdx.x % 32;
    u32 rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0;
    // A block keeps its columns.
    i32 worker = blockIdx.x / SPLIT;
    i32 n0 = worker % p.tiles_n * BN;
    i32 first_tile = worker / p.tiles_n, n_workers = gridDim.x / SPLIT / p.tiles_n;
    begin_block(gathered, images, filters);

    // This block's part of the sum: some stages of weights, chunk by chunk and in a chunk tap by tap.
    i32 all_units = p.chunks * N_PARTS;
    i32 from = (i32)((i64)all_units * rank / SPLIT), until = (i32)((i64)all_units * (rank + 1) / SPLIT);
    i32 first_chunk = from / N_PARTS, first_part = from - first_chunk * N_PARTS;

    if (warp == N_GROUPS * 4) {
        if (lane == 0) {
            map_prefetch(&map_a);
            map_prefetch(&map_b);
            i32 early = until - from < SB ? until - from : SB;
            i32 chunk = first_chunk, part = first_part;
#pragma unroll 1
            for (i32 i = 0; i < early; i++) {
                barrier_expect(filters.full + 8 * i, B_BYTES);
                copy_weights(weights + i * B_BYTES, &map_b, filters.full + 8 * i, chunk, part * TB, n0, p.chunks);
                if (++part == N_PARTS) part = 0, chunk++;
            }
            wait_for_inputs();
            i32 done_a = 0, done_b = 0;
#pragma unroll 1
            for (i32 tile = first_tile; tile < p.tiles; tile += n_workers) {
                Piece at = piece_of(p, tile);
                chunk = first_chunk, part = first_part;
#pragma unroll 1
                for (i32 unit = from; unit < until; unit++, done_b++) {
                    if (part == 0 || unit == from) {
                        i32 s = done_a % SA;
                        u32 bar = images.full + 8 * s, to = base + s * A_PITCH;
                        images.wait_empty(done_a);
                        barrier_expect(bar, A_BYTES);
                        if (KIND == 2)
                            copy_tile4(to, &map_a, bar, chunk * BK, at.x - p.pad[0], at.y - p.pad[1], at.image);
                        else
                            copy_tile5(to, &map_a, bar, chunk * BK, at.x - p.pad[0], at.y - p.pad[1], at.z - p.pad[2], at.image);
                        done_a++;
                    }
                    if (!RESIDENT && done_b >= early) {
                        i32 s = done_b % SB;
                        filters.wait_empty(done_b);
                        barrier_expect(filters.full + 8 * s, B_BYTES);
                        copy_weights(weights + s * B_BYTES, &map_b, filters.full + 8 * s, chunk, part * TB, n0, p.chunks);
                    }
                    if (++part == N_PARTS) part = 0, chunk++;
                }
            }
        }
        __syncwarp();
        if (SPLIT > 1) cluster_wait();
        return;
    }

    i32 group = warp / 4;
    u32 first_pixel = ((group / (GX * GY) * HY + group / GX % GY * 8) * HX + group % GX * 8) * ROW_BYTES;
    float *columns = (float *)__cvta_shared_to_generic(columns_at);
    fetch_columns<N_CONSUMERS>(columns, p.epilogue, addresses, n0, p.n, threadIdx.x);
    consumers_meet();
    wait_for_inputs();
    i32 done_a = 0, done_b = 0;
#pragma unroll 1
    for (i32 tile = first_tile; tile < p.tiles; tile += n_workers) {
        Piece piece = piece_of(p, tile);
        auto where = [&](i32 row, bool &there) { return place_in(p, piece, row, there); };
        const TileStore store(p.epilogue, addresses, p.n, rank, sums_at, gathered, warp, lane);
        Waiting waiting;
        store.fetch(waiting, where, n0);
        Accumulators acc;
        clear(acc);
        i32 part = first_part;
        u64 a = 0;
#pragma unroll 1
        for (i32 unit = from; unit < until; unit++, done_b++) {
            // The first stage of a chunk, but for the very first one: the chunk before it is read when the stage is.
            bool turns = part == 0 && unit > from;
            if (part == 0 || unit == from) {
                images.wait_full(done_a);
                a = matrix_descriptor(base + done_a % SA * A_PITCH + first_pixel, ROW_BYTES, HX * ROW_BYTES);
                done_a++;
            }
            i32 stage = RESIDENT ? unit - from : done_b % SB;
            barrier_wait(filters.full + 8 * stage, RESIDENT ? 0 : (done_b / SB) & 1);
            u64 b = matrix_descriptor(weights + stage * B_BYTES, ROW_BYTES);
            i32 tap = part * TB;
            u64 first = a + (u64)((((tap / (TX * TY)) * HY + tap / TX % TY) * HX + tap % TX) * (ROW_BYTES / 16));
            product_fence();
#pragma unroll
            for (int i = 0; i < TB; i++)
#pragma unroll
                for (int k = 0; k < BK / 16; k++)
                    warpgroup_product(acc, first + (u64)(i * (ROW_BYTES / 16) + 2 * k), b + (u64)(i * (BN * ROW_BYTES / 16) + 2 * k));
            product_commit();
            if (!RESIDENT || turns) {
                product_wait<1>();
                // Only now is the stage before this one surely read.
                if (lane == 0) {
                    if (!RESIDENT && unit > from) filters.release(done_b - 1);
                    if (turns) images.release(done_a - 2);
                }
            }
            if (++part == N_PARTS) part = 0;
        }
        product_wait<0>();
        if (lane == 0 && until > from) {
            images.release(done_a - 1);
            if (!RESIDENT) filters.release(done_b - 1);
        }
        store.give(acc, waiting, columns, where, n0);
    }
#endif
}
