// Convolution from a patch of the image: a block brings its piece of the image with the rim that windows reach
// over into shared memory once, and every tap takes its rows from there. Weights of all taps stay in shared memory
// while the block goes from tile to tile. epilogue.cuh stands in front.
//
// A warp has ROWS rows of 16 pixels along x. A row of the patch is read once for all rows of output that a tap
// below or above needs it for: ROWS + KY - 1 rows for ROWS * KY products at stride 1.
//
// Set from outside:
//   MATH ELEM        f16 or bf16
//   X_T              what the input is stored in; with GATHER 0 the same
//   GATHER           0: channels are innermost, in whole chunks of 16 bytes, and the patch holds pixels
//                    1: any strides; the patch holds for each column of output the KX * C elements of its window
//   C                channels
//   KZ KY KX SZ SY SX DZ DY DX   taps, strides, dilations
//   KC               channels (elements with GATHER) of the patch at a time, a multiple of 16
//   ROWS NT          rows and tiles of eight columns of a warp
//   WX WY WZ WN      warps along x, y, z and columns
//   BUFFERS          patches: with 2 the next comes while this one is multiplied

constexpr int TX = 16 * WX, TY = ROWS * WY, TZ = WZ;
constexpr int PX = GATHER ? TX : (TX - 1) * SX + (KX - 1) * DX + 1;
constexpr int PY = (TY - 1) * SY + (KY - 1) * DY + 1;
constexpr int PZ = (TZ - 1) * SZ + (KZ - 1) * DZ + 1;
// Bytes of a pixel: an odd number of 16-byte chunks, so that eight neighbours lie in different banks.
constexpr int PITCH = KC * 2 + 16;
constexpr int PATCH_BYTES = PZ * PY * PX * PITCH;
constexpr int TAPS_X = GATHER ? 1 : KX;
constexpr int TAPS = KZ * KY * TAPS_X;
constexpr int INNER = GATHER ? KX * C : C;
constexpr int N_CHUNKS = (INNER + KC - 1) / KC;
constexpr int BN = 8 * NT * WN;
constexpr int CHUNK_BYTES = TAPS * BN * PITCH;
constexpr int THREADS = 32 * WX * WY * WZ * WN;
constexpr int PIECES = KC / 8;

#if defined(__CUDA_ARCH__)
// Where a tile begins in the output.
struct Corner { int image, z, y, x; };

PL_INLINE Corner corner_of(const HaloArgs& p, int tile) {
  Corner at;
  at.x = tile % p.tiles_of[2] * TX;
  tile /= p.tiles_of[2];
  at.y = tile % p.tiles_of[1] * TY;
  tile /= p.tiles_of[1];
  at.z = tile % p.tiles_of[0] * TZ;
  at.image = tile / p.tiles_of[0];
  return at;
}

template <class T> PL_INLINE float element(const T* at, bool there) { return there ? to_f32(*at) : 0.0f; }

// Weights of the block's columns: for each chunk of channels and each tap a row of KC for every column.
PL_INLINE void load_weights(const HaloArgs& p, const ELEM* w, int n0, u32 to) {
  constexpr int COUNT = N_CHUNKS * TAPS * PIECES * BN;
#pragma unroll 1
  for (int idx = threadIdx.x; idx < COUNT; idx += THREADS) {
    const int piece = idx % PIECES, chunk = idx / PIECES % N_CHUNKS;
    const int tap = idx / (PIECES * N_CHUNKS) % TAPS, n = idx / (PIECES * N_CHUNKS * TAPS);
    const int c = chunk * KC + piece * 8;
    const u32 there = to + (u32)(chunk * CHUNK_BYTES + (tap * BN + n) * PITCH + piece * 16);
    const ELEM* from = w + (i64)(n0 + n) * p.k_row + tap * INNER + c;
    const bool exists = n0 + n < p.n;
#if GATHER
    u32 words[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float lo = element(from + 2 * e, exists && c + 2 * e < INNER);
      const float hi = element(from + 2 * e + 1, exists && c + 2 * e + 1 < INNER);
      words[e] = Pair<ELEM>::pack(lo, hi);
    }
    store_shared16(there, words[0], words[1], words[2], words[3]);
#else
    const bool ok = exists && c < INNER;
    copy_async16(there, ok ? from : w, ok);
#endif
  }
}

#if GATHER
// For each column of output the elements of its window along x, tap by tap.
PL_INLINE void load_patch(const HaloArgs& p, const X_T* x, const Corner& at, int, u32 to) {
#pragma unroll 1
  for (int idx = threadIdx.x; idx < PZ * PY * TX; idx += THREADS) {
    const int ox = idx % TX, row = idx / TX;
    const int z = at.z * SZ - p.pad[0] + row / PY, y = at.y * SY - p.pad[1] + row % PY;
    const int x0 = (at.x + ox) * SX - p.pad[2];
    const bool exists = (u32)z < (u32)p.sizes[0] && (u32)y < (u32)p.sizes[1];
    const X_T* from = x + (exists ? at.image * p.sn + z * p.ss[0] + y * p.ss[1] : 0) + x0 * p.ss[2];
    const u32 there = to + (u32)(idx * PITCH);
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
      u32 words[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float v[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int inner = piece * 8 + 2 * e + half, s = inner / C, c = inner % C;
          v[half] = 0.0f;
          if (inner < INNER)
            v[half] = element(from + s * DX * p.ss[2] + c * p.sc, exists && (u32)(x0 + s * DX) < (u32)p.sizes[2]);
        }
        words[e] = Pair<ELEM>::pack(v[0], v[1]);
      }
      store_shared16(there + piece * 16, words[0], words[1], words[2], words[3]);
    }
  }
}
#else
// A warp takes rows of the patch, its lanes the chunks of a row.
PL_INLINE void load_patch(const HaloArgs& p, const X_T* x, const Corner& at, int chunk, u32 to) {
  const int lane = threadIdx.x % 32;
  const int z0 = at.z * SZ - p.pad[0], y0 = at.y * SY - p.pad[1], x0 = at.x * SX - p.pad[2];
  const bool is_aligned = aligned16(x);
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < PZ * PY; row += THREADS / 32) {
    const int z = z0 + row / PY, y = y0 + row % PY;
    const bool exists = (u32)z < (u32)p.sizes[0] && (u32)y < (u32)p.sizes[1];
    const X_T* from = x + (exists ? at.image * p.sn + z * p.ss[0] + y * p.ss[1] : 0) + chunk * KC;
    const u32 there = to + (u32)(row * PX * PITCH);
#pragma unroll 4
    for (int idx = lane; idx < PX * PIECES; idx += 32) {
      const int px = idx / PIECES, piece = idx % PIECES;
      const bool ok = exists && (u32)(x0 + px) < (u32)p.sizes[2] && chunk * KC + piece * 8 < C;
      const X_T* source = ok ? from + (x0 + px) * p.ss[2] + piece * 8 : x;
      const u32 target = there + (u32)(px * PITCH + piece * 16);
      if (is_aligned) {
        copy_async16(target, source, ok);
      } else {
        u32 words[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
          words[e] = Pair<ELEM>::pack(element(source + 2 * e, ok), element(source + 2 * e + 1, ok));
        store_shared16(target, words[0], words[1], words[2], words[3]);
      }
    }
  }
}
#endif

constexpr int NB = (NT + 1) / 2;
constexpr int ROWS_IN = (ROWS - 1) * SY + (KY - 1) * DY + 1;

// All taps of one patch. `a` is this lane's place in the patch, `b` in the weights.
PL_INLINE void multiply_patch(float (&acc)[ROWS][NT][4], u32 a, u32 b) {
#pragma unroll 1
  for (int kz = 0; kz < KZ; kz++) {
#pragma unroll 1
    for (int kc = 0; kc < KC / 16; kc++) {
#pragma unroll
      for (int kx = 0; kx < TAPS_X; kx++) {
        u32 bf[KY][NB][4];
#pragma unroll
        for (int ky = 0; ky < KY; ky++) {
          const u32 tap = b + (u32)((ky * TAPS_X + kx) * BN * PITCH);
          if constexpr (NT == 1) {
            load_matrix2(bf[ky][0][0], bf[ky][0][1], tap);
          } else {
#pragma unroll
            for (int n = 0; n < NB; n++) load_matrix4(bf[ky][n], tap + (u32)(n * 16 * PITCH));
          }
        }
#pragma unroll
        for (int y = 0; y < ROWS_IN; y++) {
          bool used = false;
#pragma unroll
          for (int ky = 0; ky < KY; ky++) {
            const int over = y - ky * DY;
            used = used || (over >= 0 && over % SY == 0 && over / SY < ROWS);
          }
          if (!used) continue;
          u32 af[4];
          load_matrix4(af, a + (u32)((y * PX + kx * DX) * PITCH));
#pragma unroll
          for (int ky = 0; ky < KY; ky++) {
            const int over = y - ky * DY;
            if (over >= 0 && over % SY == 0 && over / SY < ROWS) {
#pragma unroll
              for (int n = 0; n < NT; n++)
                multiply<MATH>(acc[over / SY][n], af, bf[ky][n / 2][2 * (n & 1)], bf[ky][n / 2][2 * (n & 1) + 1]);
            }
          }
        }
      }
      a += 32;
      b += 32;
    }
    a += (u32)(DZ * PY * PX * PITCH) - KC * 2;
    b += (u32)(KY * TAPS_X * BN * PITCH) - KC * 2;
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
halo(const void* x, const void* w, EPILOGUE_ARGUMENTS, const __grid_constant__ HaloArgs p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = EPILOGUE_ADDRESSES;
  extern __shared__ __align__(128) u8 memory[];
  const u32 weights = shared_address(memory), patches = weights + N_CHUNKS * CHUNK_BYTES;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int wx = warp % WX, wy = warp / WX % WY, wz = warp / (WX * WY) % WZ, wn = warp / (WX * WY * WZ);
  // A block keeps its columns.
  const int n0 = (int)(blockIdx.x % (u32)p.tiles_n) * BN;
  const int first = blockIdx.x / (u32)p.tiles_n, workers = gridDim.x / (u32)p.tiles_n;

  let_next_begin();
  load_weights(p, (const ELEM*)w, n0, weights);
  wait_for_inputs();
  if (first < p.tiles) load_patch(p, (const X_T*)x, corner_of(p, first), 0, patches);
  copy_async_commit();

  const int pixel = ((wz * SZ * PY + wy * ROWS * SY) * PX + (wx * 16 + (lane & 15)) * (GATHER ? 1 : SX));
  const u32 a = (u32)(pixel * PITCH + (lane >> 4) * 16);
  const int row = NT == 1 ? lane & 7 : ((lane >> 4) << 3) + (lane & 7);
  const u32 b = weights + (u32)((wn * 8 * NT + row) * PITCH + ((lane >> 3) & 1) * 16);

  int buffer = 0;
#pragma unroll 1
  for (int tile = first; tile < p.tiles; tile += workers) {
    float acc[ROWS][NT][4];
#pragma unroll
    for (int i = 0; i < ROWS * NT * 4; i++) (&acc[0][0][0])[i] = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < N_CHUNKS; chunk++) {
      const bool is_last = chunk + 1 == N_CHUNKS;
      const int next = is_last ? tile + workers : tile, next_chunk = is_last ? 0 : chunk + 1;
      const bool more = next < p.tiles;
      if (BUFFERS == 2) {
        if (more) load_patch(p, (const X_T*)x, corner_of(p, next), next_chunk, patches + (buffer ^ 1) * PATCH_BYTES);
        copy_async_commit();
        copy_async_wait<1>();
      } else {
        copy_async_wait<0>();
      }
      __syncthreads();
      multiply_patch(acc, patches + buffer * PATCH_BYTES + a, b + (u32)(chunk * CHUNK_BYTES));
      __syncthreads();
      if (BUFFERS == 1) {
        if (more) load_patch(p, (const X_T*)x, corner_of(p, next), next_chunk, patches);
        copy_async_commit();
      } else {
        buffer ^= 1;
      }
    }

    const Corner at = corner_of(p, tile);
    const int own = lane & 3;
    auto take = [&](float(&v)[8], int r, int px, int n) {
      Place place;
      place.q[0] = at.image;
      place.q[1] = at.z + wz;
      place.q[2] = at.y + wy * ROWS + r;
      place.q[3] = at.x + wx * 16 + px;
      place.m = ((place.q[0] * p.out[0] + place.q[1]) * p.out[1] + place.q[2]) * p.out[2] + place.q[3];
      const bool inside = place.q[1] < p.out[0] && place.q[2] < p.out[1] && place.q[3] < p.out[2] && n < p.n;
      if (inside) epilogue8(p.epilogue, addresses, v, place, n, p.n - n < 8 ? p.n - n : 8);
    };
    if constexpr (NT == 1) {
#pragma unroll
      for (int r = 0; r < ROWS; r += 2) {
        float v[8];
        const float(&e)[4] = acc[r][0], (&f)[4] = acc[r + 1][0];
        float four[4][2] = {{e[0], e[1]}, {e[2], e[3]}, {f[0], f[1]}, {f[2], f[3]}};
        eight_of_quad(v, four, lane);
        take(v, r + (own >> 1), (lane >> 2) + 8 * (own & 1), n0 + wn * 8);
      }
    } else {
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int t = 0; t < NT; t += 2) {
          float v[8];
          const float(&e)[4] = acc[r][t], (&f)[4] = acc[r][t + 1];
          float four[4][2] = {{e[0], e[1]}, {f[0], f[1]}, {e[2], e[3]}, {f[2], f[3]}};
          eight_of_quad(v, four, lane);
          take(v, r, (lane >> 2) + 8 * (own >> 1), n0 + (wn * NT + t + (own & 1)) * 8);
        }
    }
  }
#endif
}
