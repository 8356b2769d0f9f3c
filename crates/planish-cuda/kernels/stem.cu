// Convolutions of few channels: the first layers of networks.
//
// A block brings the pixels under the windows of a tile into shared memory once, channels innermost, and takes the
// tensor cores' fragments straight from there: the columns of one window row lie side by side, so a pair of
// neighbours along k is one word. Nothing is unrolled in memory. Weights stay with the block, which goes from tile
// to tile. epilogue.cuh and epilogue_row.cuh stand in front.
//
// Where windows begin at odd elements a second copy, shifted by one element, has their pairs aligned.
// Rows of windows are padded to pairs and k to 16 with weights of zero: what lies there in shared memory is always
// a pixel's value or zero. (A pixel that is infinite makes its left neighbour's windows NaN, therefore.)
//
// Set from outside:
//   X_T TIN          the image's type in memory, and what is multiplied
//   X_LAST           1: channels are innermost in memory, 0: columns are
//   CHANNELS         how many
//   KD KH KW         the window; SD SH SW its steps
//   TD TH TW         the tile of output pixels: 64 or 128 in all, TW a multiple of 8
//   MT               16-row fragments of a warp; four warps
//   BN               columns of a block
//   MIN_BLOCKS       blocks that share a multiprocessor
//   AHEAD            1: pixels of f32 of the next tile come into shared memory as they are while this one is computed

#define THREADS 128
#define RUN (KW * CHANNELS)
#define RUN_PAIRS ((RUN + 1) / 2)
#define WINDOW_ROWS (KD * KH)
#define STEPS ((WINDOW_ROWS * RUN_PAIRS + 7) / 8)
#define K_ROW (STEPS * 16)
#define W_PITCH (K_ROW + 8)
#define PD ((TD - 1) * SD + KD)
#define PH ((TH - 1) * SH + KH)
#define PW ((TW - 1) * SW + KW)
#define PITCH ((PW * CHANNELS + 1) / 2 * 2)
// Both halves of the banks are at work when the copies lie half of them apart.
#define COPY ((PD * PH * PITCH + 63) / 64 * 64 + 32)
#define COPIES (SW * CHANNELS % 2 ? 2 : 1)
#define NT (BN / 8)
#define TOTAL (PD * PH * PW * CHANNELS)
// So many loads are under way at once.
#define LOADS ((TOTAL + THREADS - 1) / THREADS)
#define ROUNDS ((LOADS + 15) / 16)
#define BATCH ((LOADS + ROUNDS - 1) / ROUNDS)

// Windows beside each other of one channel: rows come four pixels at a time where memory allows it.
#define QUADS (CHANNELS == 1 && !X_LAST && KW % 4 == 0 && SW % 4 == 0)
#define TOTAL_QUADS (TOTAL / 4)
#define QUAD_LOADS ((TOTAL_QUADS + THREADS - 1) / THREADS)
#define QUAD_BATCH (QUAD_LOADS < 16 ? QUAD_LOADS : 16)

// Elements of a patch as they lie in shared memory.
#define PATCH (PD * PH * PITCH)

struct Tile { i32 image, at[3]; };

PL_INLINE Tile tile_of(const StemArgs& p, i32 idx) {
  Tile t;
  u32 rest = idx;
  t.at[2] = rest % (u32)p.tiles[2] * TW;
  rest /= (u32)p.tiles[2];
  t.at[1] = rest % (u32)p.tiles[1] * TH;
  rest /= (u32)p.tiles[1];
  t.at[0] = rest % (u32)p.tiles[0] * TD;
  t.image = rest / (u32)p.tiles[0];
  return t;
}

#if QUADS
struct alignas(4 * sizeof(X_T)) Quad { X_T v[4]; };

// Whether rows of the image begin and end with whole quads.
PL_INLINE bool in_quads(const StemArgs& p, const X_T* x) {
  const i64 steps = p.sn | p.ss[0] | p.ss[1] | p.size[2];
  return (u64)x % sizeof(Quad) == 0 && steps % 4 == 0 && p.ss[2] == 1 && p.pad[2] == 0;
}

PL_INLINE void bring_quads(const StemArgs& p, const X_T* x, const Tile& t, TIN* patch) {
  const i32 d0 = t.at[0] * SD - p.pad[0], h0 = t.at[1] * SH - p.pad[1], w0 = t.at[2] * SW;
  const X_T* from = x + (i64)t.image * p.sn;
#pragma unroll 1
  for (u32 base = threadIdx.x; base < TOTAL_QUADS; base += QUAD_BATCH * THREADS) {
    Quad v[QUAD_BATCH];
#pragma unroll
    for (int i = 0; i < QUAD_BATCH; i++) {
      const u32 idx = base + i * THREADS, column = idx % (PW / 4) * 4, row = idx / (PW / 4);
      const i32 d = d0 + (PD > 1 ? row / PH : 0), h = h0 + (PD > 1 ? row % PH : row), w = w0 + column;
#pragma unroll
      for (int e = 0; e < 4; e++) v[i].v[e] = X_T();
      if (idx < TOTAL_QUADS && (u32)d < (u32)p.size[0] && (u32)h < (u32)p.size[1] && (u32)w < (u32)p.size[2])
        v[i] = *(const Quad*)(from + d * p.ss[0] + h * p.ss[1] + w);
    }
#pragma unroll
    for (int i = 0; i < QUAD_BATCH; i++) {
      const u32 idx = base + i * THREADS;
      if (idx >= TOTAL_QUADS) continue;
      uint2 words;
      words.x = Pair<TIN>::pack(to_f32(v[i].v[0]), to_f32(v[i].v[1]));
      words.y = Pair<TIN>::pack(to_f32(v[i].v[2]), to_f32(v[i].v[3]));
      *(uint2*)(patch + idx / (PW / 4) * PITCH + idx % (PW / 4) * 4) = words;
    }
  }
}
#endif

// The pixels under a tile's windows; zeros outside of the image.
PL_INLINE void bring(const StemArgs& p, const X_T* x, const Tile& t, TIN* patch) {
  const i32 d0 = t.at[0] * SD - p.pad[0], h0 = t.at[1] * SH - p.pad[1], w0 = t.at[2] * SW - p.pad[2];
  const X_T* from = x + (i64)t.image * p.sn;
#pragma unroll 1
  for (u32 base = threadIdx.x; base < TOTAL; base += BATCH * THREADS) {
    float v[BATCH];
    int to[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const u32 idx = base + i * THREADS;
#if X_LAST
      const u32 c = idx % CHANNELS, line = idx / CHANNELS, column = line % PW, row = line / PW;
#else
      const u32 column = idx % PW, line = idx / PW, c = line % CHANNELS, row = line / CHANNELS;
#endif
      const i32 d = d0 + (PD > 1 ? row / PH : 0), h = h0 + (PD > 1 ? row % PH : row), w = w0 + column;
      to[i] = row * PITCH + column * CHANNELS + c;
      v[i] = 0.f;
      if (idx < TOTAL && (u32)d < (u32)p.size[0] && (u32)h < (u32)p.size[1] && (u32)w < (u32)p.size[2])
        v[i] = to_f32(from[d * p.ss[0] + h * p.ss[1] + w * p.ss[2] + (i32)c * p.sc]);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      if (base + i * THREADS >= TOTAL) continue;
      const TIN value = from_f32<TIN>(v[i]);
      patch[to[i]] = value;
      if (COPIES == 2 && to[i] > 0) patch[COPY + to[i] - 1] = value;
    }
  }
}

#if AHEAD
// Asks for the same pixels as they are, in the order of the patch.
PL_INLINE void ask(const StemArgs& p, const float* x, const Tile& t, float* raw) {
  const i32 d0 = t.at[0] * SD - p.pad[0], h0 = t.at[1] * SH - p.pad[1], w0 = t.at[2] * SW - p.pad[2];
  const float* from = x + (i64)t.image * p.sn;
#pragma unroll 4
  for (u32 idx = threadIdx.x; idx < TOTAL; idx += THREADS) {
#if X_LAST
    const u32 c = idx % CHANNELS, line = idx / CHANNELS, column = line % PW, row = line / PW;
#else
    const u32 column = idx % PW, line = idx / PW, c = line % CHANNELS, row = line / CHANNELS;
#endif
    const i32 d = d0 + (PD > 1 ? row / PH : 0), h = h0 + (PD > 1 ? row % PH : row), w = w0 + column;
    const bool there = (u32)d < (u32)p.size[0] && (u32)h < (u32)p.size[1] && (u32)w < (u32)p.size[2];
    const float* at = from + (d * p.ss[0] + h * p.ss[1] + w * p.ss[2] + (i32)c * p.sc);
    copy_async4(shared_address(raw + row * PITCH + column * CHANNELS + c), there ? at : x, there);
  }
}

// What came, as the patch.
PL_INLINE void take(const float* raw, TIN* patch) {
#pragma unroll 4
  for (int i = threadIdx.x; i < PATCH / 2; i += THREADS) {
    const float2 pair = ((const float2*)raw)[i];
    ((u32*)patch)[i] = Pair<TIN>::pack(pair.x, pair.y);
    if (COPIES == 2) ((u32*)(patch + COPY))[i] = Pair<TIN>::pack(pair.y, raw[2 * i + 2]);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
stem(const void* x, const void* w, EPILOGUE_ARGUMENTS, const __grid_constant__ StemArgs p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = EPILOGUE_ADDRESSES;
  extern __shared__ __align__(128) u8 memory[];
  TIN* weights = (TIN*)memory;
  float* biases = (float*)(memory + BN * W_PITCH * 2);
  TIN* patch = (TIN*)(memory + BN * W_PITCH * 2 + BN * 4);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, j = lane % 4;
  const i32 n0 = blockIdx.y * BN;

  // No kernel writes the weights, so they come while the one in front may still run.
  const int per_row = K_ROW / 8;
  for (int idx = threadIdx.x; idx < BN * per_row; idx += THREADS) {
    const int row = idx / per_row, chunk = idx % per_row;
    copy_async16(shared_address(weights + row * W_PITCH + chunk * 8),
                 (const TIN*)w + (i64)(n0 + row) * K_ROW + chunk * 8, n0 + row < p.n);
  }
  copy_async_commit();
  fetch_columns<THREADS>(biases, p.epilogue, addresses, n0, p.n, threadIdx.x);
  for (int idx = threadIdx.x; idx < COPIES * COPY / 2; idx += THREADS) ((u32*)patch)[idx] = 0;
  // Where a lane's pairs along k lie from the beginning of a window, and where its windows begin.
  int pairs[STEPS][2];
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int pair = s * 8 + half * 4 + j, row = pair / RUN_PAIRS, in = pair % RUN_PAIRS;
      pairs[s][half] = row < WINDOW_ROWS ? ((row / KH) * PH + row % KH) * PITCH + in * 2 : 0;
    }
  }
  int begins[MT][2];
#pragma unroll
  for (int mt = 0; mt < MT; mt++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int pixel = (warp * MT + mt) * 16 + half * 8 + g;
      const int first = (pixel / (TW * TH) * SD * PH + pixel / TW % TH * SH) * PITCH + pixel % TW * SW * CHANNELS;
      begins[mt][half] = first % 2 ? COPY + first - 1 : first;
    }
  }
  const u32 columns = shared_address(weights + ((lane / 16) * 8 + lane % 8) * W_PITCH + (lane / 8 % 2) * 8);
#if QUADS
  const bool quads = in_quads(p, (const X_T*)x);
#endif
#if AHEAD
  float* raw = (float*)(patch + COPIES * COPY);
  for (int idx = threadIdx.x; idx < PATCH + 2; idx += THREADS) raw[idx] = 0.f;
#endif
  copy_async_wait<0>();
  let_next_begin();
  wait_for_inputs();
#if AHEAD
  // Zeros that stay are in place before pixels come between them.
  __syncthreads();
  if (blockIdx.x < p.n_tiles) ask(p, (const float*)x, tile_of(p, blockIdx.x), raw);
  copy_async_commit();
#endif

#pragma unroll 1
  for (i32 idx = blockIdx.x; idx < p.n_tiles; idx += gridDim.x) {
    const Tile t = tile_of(p, idx);
#if AHEAD
    copy_async_wait<0>();
#endif
    // The tile before this one has been read, and zeros and weights are in place.
    __syncthreads();
#if AHEAD
    take(raw, patch);
    __syncthreads();
    if (idx + gridDim.x < p.n_tiles) ask(p, (const float*)x, tile_of(p, idx + gridDim.x), raw);
    copy_async_commit();
#else
#if QUADS
    if (quads) bring_quads(p, (const X_T*)x, t, patch);
    else
#endif
      bring(p, (const X_T*)x, t, patch);
    __syncthreads();
#endif
    float acc[MT * 2 * NT][2];
#pragma unroll
    for (int u = 0; u < MT * 2 * NT; u++) acc[u][0] = acc[u][1] = 0.f;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      u32 a[MT][4];
#pragma unroll
      for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int e = 0; e < 4; e++) a[mt][e] = *(const u32*)(patch + begins[mt][e % 2] + pairs[s][e / 2]);
      }
#pragma unroll
      for (int nt = 0; nt < NT; nt += 2) {
        u32 b[4];
        load_matrix4(b, columns + (nt * 8 * W_PITCH + s * 16) * 2);
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
#pragma unroll
          for (int k = 0; k < 2; k++) {
            const int low = mt * 2 * NT + nt + k, high = low + NT;
            float d[4] = {acc[low][0], acc[low][1], acc[high][0], acc[high][1]};
            multiply<TIN>(d, a[mt], b[2 * k], b[2 * k + 1]);
            acc[low][0] = d[0], acc[low][1] = d[1], acc[high][0] = d[2], acc[high][1] = d[3];
          }
        }
      }
    }
    // Four pieces of eight columns at a time; each of four neighbouring lanes goes on with one of them.
#pragma unroll
    for (int q = 0; q < MT * 2 * NT; q += 4) {
      float four[4][2];
#pragma unroll
      for (int u = 0; u < 4; u++) four[u][0] = acc[q + u][0], four[u][1] = acc[q + u][1];
      float v[8];
      eight_of_quad(v, four, lane);
      const int piece = q + j, column = piece % NT * 8;
      const int pixel = warp * MT * 16 + piece / NT * 8 + g;
      Place at;
      at.q[0] = t.image;
      at.q[1] = t.at[0] + pixel / (TW * TH);
      at.q[2] = t.at[1] + pixel / TW % TH;
      at.q[3] = t.at[2] + pixel % TW;
      at.m = ((at.q[0] * p.out[0] + at.q[1]) * p.out[1] + at.q[2]) * p.out[2] + at.q[3];
      const bool there = at.q[1] < p.out[0] && at.q[2] < p.out[1] && at.q[3] < p.out[2];
      const i32 n = n0 + column;
      epilogue_row(p.epilogue, addresses, v, Columns(p.epilogue, biases + column), make_uint4(0, 0, 0, 0), at, n, there ? p.n - n : 0);
    }
  }
#endif
}
