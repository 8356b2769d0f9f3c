// Convolutions of stride 1 on Hopper whose windows overlap: the copy engine brings each block's piece of the image once,
// with the rim that windows reach over, and every tap multiplies the same piece from another place.
//
// A warpgroup's 64 rows are 8 by 8 pixels: eight neighbours along x lie together as the products want them, and
// going down a row of the piece is the step from one group of eight to the next. Swizzling goes by address bits, so
// a tap's matrix may begin at any pixel. What lies outside the image is filled with zeros by the copy engine.
//
// Set from outside, besides what wblock.cuh asks for:
//   KIND            2 or 3 spatial dimensions
//   GX GY GZ        warpgroups along x, y, z; BM is 64 times their product
//   TX TY TZ        taps
//   SA              pieces of the image in flight
//   TB SB           taps of one stage of weights (TX or 1), and stages
//   RESIDENT        1: all weights that a block needs stay in shared memory
//   SPLIT           blocks of a cluster that share one tile's sum, as in wproduct.cu
//   MIN_BLOCKS      blocks of one multiprocessor that registers must allow
//
// Weights are fetched before the wait for the grids before this one.

#define N_GROUPS (GX * GY * GZ)
#define N_CONSUMERS (N_GROUPS * 128)
#define N_THREADS (N_CONSUMERS + 32)
#define ROW_BYTES (BK * 2)
#define HX (8 * GX + TX - 1)
#define HY (8 * GY + TY - 1)
#define HZ (GZ + TZ - 1)
#define A_BYTES (HX * HY * HZ * ROW_BYTES)
#define A_PITCH ((A_BYTES + 1023) / 1024 * 1024)
#define B_BYTES (TB * BN * ROW_BYTES)
#define N_TAPS (TX * TY * TZ)
#define N_PARTS (N_TAPS / TB)
// As in wproduct.cu.
#define PART_PITCH (BN * 4 + 64)
#define OWN_ROWS (BM / SPLIT)
#define PART_BYTES (SPLIT > 1 ? BM * PART_PITCH : 0)
#define BIAS_BYTES (BN * 4)

struct Halo {
    Finish finish;
    i32 n;
    i32 tiles_n;
    i32 tiles;          // pieces of all images
    i32 tiles_of[3];    // along x, y, z
    i32 size[3];        // of the output: x, y, z
    i32 pad[3];
    i32 chunks;         // BK pieces of the channels
};

#define ARGUMENTS const void *bias_from, const void *residual, EXTRA_ARGUMENTS void *out, void *unused
#if CONSTANT_BIAS
#define ADDRESSES {out, constant_bias, residual, {EXTRA_NAMES}}
#else
#define ADDRESSES {out, bias_from, residual, {EXTRA_NAMES}}
#endif

// Where a piece begins.
struct Piece { i32 x, y, z, image; };

PL_INLINE Piece piece_of(const Halo &p, i32 tile) {
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
PL_INLINE Place place_in(const Halo &p, const Piece &piece, i32 row, bool &there) {
    i32 group = row / 64;
    i32 x = piece.x + group % GX * 8 + row % 8;
    i32 y = piece.y + group / GX % GY * 8 + row / 8 % 8, z = piece.z + group / (GX * GY);
    Place at;
    at.q[0] = piece.image, at.q[1] = z, at.q[2] = y, at.q[3] = x;
    at.m = ((piece.image * p.size[2] + z) * p.size[1] + y) * p.size[0] + x;
    there = x < p.size[0] && y < p.size[1] && z < p.size[2];
    return at;
}

extern "C" __global__ void
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
__launch_bounds__(N_THREADS, MIN_BLOCKS)
whalo(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, ARGUMENTS,
      const __grid_constant__ Halo p) {
#if __CUDA_ARCH__ >= 900
    const Addresses addresses = ADDRESSES;
    extern __shared__ u8 raw[];
    u32 base = (shared_address(raw) + 1023) & ~1023u;
    u32 weights = base + SA * A_PITCH;
    u32 parts = weights + SB * B_BYTES;
    u32 bias_at = parts + PART_BYTES;
    u32 full_a = bias_at + BIAS_BYTES, empty_a = full_a + 8 * SA, full_b = empty_a + 8 * SA, empty_b = full_b + 8 * SB;
    u32 gathered = empty_b + 8 * SB;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0;
    // A block keeps its columns.
    i32 worker = blockIdx.x / SPLIT;
    i32 n0 = worker % p.tiles_n * BN;
    i32 first_tile = worker / p.tiles_n, n_workers = gridDim.x / SPLIT / p.tiles_n;

    let_next_begin();
    if (threadIdx.x == 0) {
        for (int s = 0; s < SA; s++) {
            barrier_init(full_a + 8 * s, 1);
            barrier_init(empty_a + 8 * s, N_GROUPS * 4);
        }
        for (int s = 0; s < SB; s++) {
            barrier_init(full_b + 8 * s, 1);
            barrier_init(empty_b + 8 * s, N_GROUPS * 4);
        }
        if (SPLIT > 1) barrier_init(gathered, 1);
        barrier_init_fence();
        if (SPLIT > 1) barrier_expect(gathered, BM * BN * 4);
    }
    __syncthreads();
    if (SPLIT > 1) cluster_arrive();

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
                barrier_expect(full_b + 8 * i, B_BYTES);
                copy_tile3(weights + i * B_BYTES, &map_b, full_b + 8 * i, chunk * BK, n0, part * TB);
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
                        if (done_a >= SA) barrier_wait(empty_a + 8 * s, (done_a / SA - 1) & 1);
                        barrier_expect(full_a + 8 * s, A_BYTES);
                        u32 to = base + s * A_PITCH;
                        if (KIND == 2)
                            copy_tile4(to, &map_a, full_a + 8 * s, chunk * BK, at.x - p.pad[0], at.y - p.pad[1], at.image);
                        else
                            copy_tile5(to, &map_a, full_a + 8 * s, chunk * BK, at.x - p.pad[0], at.y - p.pad[1], at.z - p.pad[2], at.image);
                        done_a++;
                    }
                    if (!RESIDENT && done_b >= early) {
                        i32 b = done_b % SB;
                        if (done_b >= SB) barrier_wait(empty_b + 8 * b, (done_b / SB - 1) & 1);
                        barrier_expect(full_b + 8 * b, B_BYTES);
                        copy_tile3(weights + b * B_BYTES, &map_b, full_b + 8 * b, chunk * BK, n0, part * TB);
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
    // This lane's first row of the tile, the second lies eight on, and its columns.
    i32 lane_row = group * 64 + warp % 4 * 16 + lane / 4, lane_col = lane % 4 * 8;
    float *bias = (float *)__cvta_shared_to_generic(bias_at);
    fetch_bias<N_CONSUMERS>(bias, addresses.bias, n0, p.n, threadIdx.x);
    asm volatile("bar.sync 1, %0;" ::"n"(N_CONSUMERS) : "memory");
    wait_for_inputs();
    i32 done_a = 0, done_b = 0;
#pragma unroll 1
    for (i32 tile = first_tile; tile < p.tiles; tile += n_workers) {
        Piece piece = piece_of(p, tile);
#if SPLIT > 1
        const int n_vectors = (OWN_ROWS * (BN / 8) + N_CONSUMERS - 1) / N_CONSUMERS;
        uint4 residual[n_vectors];
#pragma unroll
        for (int i = 0; i < n_vectors; i++) {
            i32 v = threadIdx.x + i * N_CONSUMERS, row = v / (BN / 8), col = v % (BN / 8) * 8;
            bool there;
            Place at = place_in(p, piece, (i32)rank * OWN_ROWS + row, there);
            residual[i] = fetch_residual(p.finish, addresses, at, n0 + col, row < OWN_ROWS && there ? p.n - n0 - col : 0);
        }
#else
        Place at[2];
        bool there[2];
        at[0] = place_in(p, piece, lane_row, there[0]);
        at[1] = place_in(p, piece, lane_row + 8, there[1]);
#if EARLY
        uint4 residual[2][(BN + 31) / 32];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < (BN + 31) / 32; j++) {
                i32 n = n0 + 32 * j + lane_col;
                residual[h][j] = fetch_residual(p.finish, addresses, at[h], n, there[h] ? p.n - n : 0);
            }
#endif
#endif
        Sums sums;
#pragma unroll
        for (int i = 0; i < BN / 2; i++) sums.d[i] = 0.f;
        i32 part = first_part;
        u64 a = 0;
#pragma unroll 1
        for (i32 unit = from; unit < until; unit++, done_b++) {
            // The first stage of a chunk, but for the very first one: the chunk before it is read when the stage is.
            bool turns = part == 0 && unit > from;
            if (part == 0 || unit == from) {
                i32 s = done_a % SA;
                barrier_wait(full_a + 8 * s, (done_a / SA) & 1);
                a = matrix_descriptor(base + s * A_PITCH + first_pixel, ROW_BYTES, HX * ROW_BYTES);
                done_a++;
            }
            i32 sb = RESIDENT ? unit - from : done_b % SB;
            barrier_wait(full_b + 8 * sb, RESIDENT ? 0 : (done_b / SB) & 1);
            u64 b = matrix_descriptor(weights + sb * B_BYTES, ROW_BYTES);
            i32 tap = part * TB;
            u64 first = a + (u64)((((tap / (TX * TY)) * HY + tap / TX % TY) * HX + tap % TX) * (ROW_BYTES / 16));
            product_fence();
#pragma unroll
            for (int i = 0; i < TB; i++)
#pragma unroll
                for (int k = 0; k < BK / 16; k++)
                    warpgroup_product(sums, first + (u64)(i * (ROW_BYTES / 16) + 2 * k), b + (u64)(i * (BN * ROW_BYTES / 16) + 2 * k));
            product_commit();
            if (!RESIDENT || turns) {
                product_wait<1>();
                // Only now is the stage before this one surely read.
                if (lane == 0) {
                    if (!RESIDENT && unit > from) barrier_arrive(empty_b + 8 * ((done_b - 1) % SB));
                    if (turns) barrier_arrive(empty_a + 8 * ((done_a - 2) % SA));
                }
            }
            if (++part == N_PARTS) part = 0;
        }
        product_wait<0>();
        if (lane == 0 && until > from) {
            barrier_arrive(empty_a + 8 * ((done_a - 1) % SA));
            if (!RESIDENT) barrier_arrive(empty_b + 8 * ((done_b - 1) % SB));
        }
#if SPLIT > 1
        cluster_wait();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            i32 row = lane_row + 8 * h;
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
            i32 v = threadIdx.x + i * N_CONSUMERS, row = v / (BN / 8), block = v % (BN / 8);
            if (row < OWN_ROWS) {
                float sum[8] = {};
#pragma unroll
                for (int r = 0; r < SPLIT; r++) {
                    u32 at = parts + (r * OWN_ROWS + row) * PART_PITCH + block / 4 * 128 + block % 4 * 16;
                    float4 x = load_shared(at), y = load_shared(at + 64);
                    sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w, sum[4] += y.x, sum[5] += y.y, sum[6] += y.z, sum[7] += y.w;
                }
                bool there;
                Place at = place_in(p, piece, (i32)rank * OWN_ROWS + row, there);
                i32 n = n0 + block * 8;
                finish_row(p.finish, addresses, sum, bias + block * 8, residual[i], at, n, there ? p.n - n : 0);
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
                i32 n = n0 + 32 * j + lane_col;
#if EARLY
                uint4 r = residual[h][j];
#else
                uint4 r = make_uint4(0, 0, 0, 0);
#endif
                finish_row(p.finish, addresses, v, bias + 32 * j + lane_col, r, at[h], n, there[h] ? p.n - n : 0);
            }
        }
#endif
    }
#endif
}
