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
//   TB SB           taps of one stage of weights, and stages
//   RESIDENT        1: all weights of a block's columns stay in shared memory
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

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
whalo(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, ARGUMENTS,
      const __grid_constant__ Halo p) {
#if __CUDA_ARCH__ >= 900
    const Addresses addresses = ADDRESSES;
    extern __shared__ u8 raw[];
    u32 base = (shared_address(raw) + 1023) & ~1023u;
    u32 weights = base + SA * A_PITCH;
    u32 bias_at = weights + SB * B_BYTES;
    u32 full_a = bias_at + BIAS_BYTES, empty_a = full_a + 8 * SA, full_b = empty_a + 8 * SA, empty_b = full_b + 8 * SB;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // A block keeps its columns.
    i32 n0 = blockIdx.x % p.tiles_n * BN;
    i32 first_tile = blockIdx.x / p.tiles_n, n_workers = gridDim.x / p.tiles_n;

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
        barrier_init_fence();
    }
    __syncthreads();

    if (warp == N_GROUPS * 4) {
        if (lane == 0) {
            map_prefetch(&map_a);
            map_prefetch(&map_b);
            i32 all_b = p.chunks * N_PARTS;
            i32 early = all_b < SB ? all_b : SB;
#pragma unroll 1
            for (i32 i = 0; i < early; i++) {
                barrier_expect(full_b + 8 * i, B_BYTES);
                copy_tile3(weights + i * B_BYTES, &map_b, full_b + 8 * i, i / N_PARTS * BK, n0, i % N_PARTS * TB);
            }
            wait_for_inputs();
            i32 done_a = 0, done_b = 0;
#pragma unroll 1
            for (i32 tile = first_tile; tile < p.tiles; tile += n_workers) {
                Piece at = piece_of(p, tile);
#pragma unroll 1
                for (i32 chunk = 0; chunk < p.chunks; chunk++, done_a++) {
                    i32 s = done_a % SA;
                    if (done_a >= SA) barrier_wait(empty_a + 8 * s, (done_a / SA - 1) & 1);
                    barrier_expect(full_a + 8 * s, A_BYTES);
                    u32 to = base + s * A_PITCH;
                    if (KIND == 2)
                        copy_tile4(to, &map_a, full_a + 8 * s, chunk * BK, at.x - p.pad[0], at.y - p.pad[1], at.image);
                    else
                        copy_tile5(to, &map_a, full_a + 8 * s, chunk * BK, at.x - p.pad[0], at.y - p.pad[1], at.z - p.pad[2], at.image);
                    if (!RESIDENT) {
#pragma unroll 1
                        for (i32 part = 0; part < N_PARTS; part++, done_b++) {
                            if (done_b < early) continue;
                            i32 b = done_b % SB;
                            if (done_b >= SB) barrier_wait(empty_b + 8 * b, (done_b / SB - 1) & 1);
                            barrier_expect(full_b + 8 * b, B_BYTES);
                            copy_tile3(weights + b * B_BYTES, &map_b, full_b + 8 * b, chunk * BK, n0, part * TB);
                        }
                    }
                }
            }
        }
        return;
    }

    i32 group = warp / 4;
    i32 gx = group % GX, gy = group / GX % GY, gz = group / (GX * GY);
    u32 first_pixel = ((gz * HY + gy * 8) * HX + gx * 8) * ROW_BYTES;
    // This lane's pixels in the group's eight by eight, the second one row below, and its columns.
    i32 lane_x = lane / 4, lane_y = warp % 4 * 2, lane_col = lane % 4 * 8;
    float *bias = (float *)__cvta_shared_to_generic(bias_at);
    fetch_bias<N_CONSUMERS>(bias, addresses.bias, n0, p.n, threadIdx.x);
    asm volatile("bar.sync 1, %0;" ::"n"(N_CONSUMERS) : "memory");
    wait_for_inputs();
    i32 done_a = 0, done_b = 0;
#pragma unroll 1
    for (i32 tile = first_tile; tile < p.tiles; tile += n_workers) {
        Piece piece = piece_of(p, tile);
        Place at[2];
        bool there[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            i32 x = piece.x + gx * 8 + lane_x, y = piece.y + gy * 8 + lane_y + h, z = piece.z + gz;
            at[h].q[0] = piece.image, at[h].q[1] = z, at[h].q[2] = y, at[h].q[3] = x;
            at[h].m = ((piece.image * p.size[2] + z) * p.size[1] + y) * p.size[0] + x;
            there[h] = x < p.size[0] && y < p.size[1] && z < p.size[2];
        }
#if EARLY
        uint4 early[2][(BN + 31) / 32];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < (BN + 31) / 32; j++) {
                i32 n = n0 + 32 * j + lane_col;
                early[h][j] = fetch_residual(p.finish, addresses, at[h], n, there[h] ? p.n - n : 0);
            }
#endif
        Sums sums;
#pragma unroll
        for (int i = 0; i < BN / 2; i++) sums.d[i] = 0.f;
#pragma unroll 1
        for (i32 chunk = 0; chunk < p.chunks; chunk++, done_a++) {
            i32 s = done_a % SA;
            barrier_wait(full_a + 8 * s, (done_a / SA) & 1);
            u64 a = matrix_descriptor(base + s * A_PITCH + first_pixel, ROW_BYTES, HX * ROW_BYTES);
#pragma unroll
            for (int part = 0; part < N_PARTS; part++) {
                i32 sb = RESIDENT ? chunk * N_PARTS + part : done_b % SB;
                barrier_wait(full_b + 8 * sb, RESIDENT ? 0 : (done_b / SB) & 1);
                u64 b = matrix_descriptor(weights + sb * B_BYTES, ROW_BYTES);
                product_fence();
#pragma unroll
                for (int i = 0; i < TB; i++) {
                    const int tap = part * TB + i;
                    const int shift = ((tap / (TX * TY) * HY + tap / TX % TY) * HX + tap % TX) * ROW_BYTES / 16;
#pragma unroll
                    for (int k = 0; k < BK / 16; k++)
                        warpgroup_product(sums, a + (u64)(shift + 2 * k), b + (u64)(i * (BN * ROW_BYTES / 16) + 2 * k));
                }
                product_commit();
                if (!RESIDENT) {
                    product_wait<1>();
                    // Only now is the stage before this one surely read.
                    if (lane == 0 && (chunk > 0 || part > 0)) barrier_arrive(empty_b + 8 * ((done_b + SB - 1) % SB));
                    if (lane == 0 && chunk > 0 && part == 0) barrier_arrive(empty_a + 8 * ((done_a + SA - 1) % SA));
                    done_b++;
                }
            }
            if (RESIDENT && chunk > 0) {
                product_wait<1>();
                if (lane == 0) barrier_arrive(empty_a + 8 * ((done_a + SA - 1) % SA));
            }
        }
        product_wait<0>();
        if (lane == 0) {
            barrier_arrive(empty_a + 8 * ((done_a + SA - 1) % SA));
            if (!RESIDENT) barrier_arrive(empty_b + 8 * ((done_b + SB - 1) % SB));
        }
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
                uint4 r = early[h][j];
#else
                uint4 r = make_uint4(0, 0, 0, 0);
#endif
                finish_row(p.finish, addresses, v, bias + 32 * j + lane_col, r, at[h], n, there[h] ? p.n - n : 0);
            }
        }
    }
#endif
}
