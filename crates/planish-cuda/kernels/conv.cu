// Convolution as an implicit matrix product: rows are output pixels over all images, columns the output channels
// of a group, k runs over the window's taps and, within a tap, the group's input channels. product.cuh stands in
// front and says what is set from outside; besides:
//   X_T          what the input is stored in
//   X_WIDE       1: channels are innermost and lie in whole chunks of 16 bytes; 0: any strides
//   X_CACHED     with X_WIDE 1: through the first-level cache, where the taps of neighbours meet
//   MANY_TAPS    1: windows of more than 32 taps
//   FEW_C        with X_WIDE 0: the channels of a group, or 0 where they come at run time

// Output pixels of all images, and a product for each group.
PL_INLINE int rows_of(const ConvArgs& p) { return p.n_images * p.out[0] * p.out[1] * p.out[2]; }
PL_INLINE i64 products_of(const ConvArgs& p) { return p.groups; }

// Coordinates of an output pixel.
PL_INLINE void pixel(const ConvArgs& p, int m, int (&q)[4]) {
  u32 rest = (u32)m;
  const u32 ow = rest % (u32)p.out[2];
  rest /= (u32)p.out[2];
  const u32 oh = rest % (u32)p.out[1];
  rest /= (u32)p.out[1];
  q[3] = (int)ow;
  q[2] = (int)oh;
  q[1] = (int)(rest % (u32)p.out[0]);
  q[0] = (int)(rest / (u32)p.out[0]);
}

// Where k is: a tap and a channel.
struct Tap {
  int c, s, r, d, idx;
  PL_INLINE void start(const ConvArgs& p, int k) {
    const int tap = k / p.c;
    c = k - tap * p.c;
    idx = tap;
    s = tap % p.kernel[2];
    const int rest = tap / p.kernel[2];
    r = rest % p.kernel[1];
    d = rest / p.kernel[1];
  }
  PL_INLINE void next_tap(const ConvArgs& p) {
    idx++;
    if (++s == p.kernel[2]) {
      s = 0;
      if (++r == p.kernel[1]) { r = 0; d++; }
    }
  }
  PL_INLINE void advance(const ConvArgs& p, int by) {
    c += by;
#pragma unroll 1
    while (c >= p.c) { c -= p.c; next_tap(p); }
  }
};

// Pixels as rows, in whole chunks.
template <class T> struct PixelsWide {
  static constexpr int PER = (BM * CHUNKS + THREADS - 1) / THREADS;
  static constexpr bool RAGGED = BM * CHUNKS % THREADS != 0;
  static constexpr bool THROUGH_REGISTERS = false;
  const ConvArgs* p;
  const T* whole;
  bool is_aligned;
  const T* at[PER];   // the window's origin, perhaps outside
#if MANY_TAPS
  int origin[PER][3];
#else
  u32 taps[PER];      // bit t: tap t is inside the image
#endif
  Tap tap;
  int n_taps;

  PL_INLINE void start(const ConvArgs& conv, const T* x, int m0, int rows, int group, int k0) {
    p = &conv;
    n_taps = conv.kernel[0] * conv.kernel[1] * conv.kernel[2];
    tap.start(conv, k0 + (int)(threadIdx.x % CHUNKS) * EPC);
    whole = x;
    is_aligned = aligned16(x);
    x += (i64)group * conv.c;
#pragma unroll
    for (int i = 0; i < PER; i++) {
      const int row = threadIdx.x / CHUNKS + i * (THREADS / CHUNKS);
      int q[4];
      pixel(conv, m0 + row, q);
      const bool exists = row < rows;
      int o[3];
      i64 offset = (i64)q[0] * conv.sn;
#pragma unroll
      for (int axis = 0; axis < 3; axis++) {
        o[axis] = q[axis + 1] * conv.stride[axis] - conv.pad[axis];
        offset += (i64)o[axis] * conv.ss[axis];
      }
      at[i] = x + (exists ? offset : 0);
#if MANY_TAPS
#pragma unroll
      for (int axis = 0; axis < 3; axis++) origin[i][axis] = exists ? o[axis] : -0x40000000;
#else
      u32 along = 0;
#pragma unroll 1
      for (int s = 0; s < conv.kernel[2]; s++)
        if ((u32)(o[2] + s * conv.dilation[2]) < (u32)conv.sizes[2]) along |= 1u << s;
      u32 all = 0;
      int shift = 0;
#pragma unroll 1
      for (int d = 0; d < conv.kernel[0]; d++)
#pragma unroll 1
        for (int r = 0; r < conv.kernel[1]; r++) {
          const bool in = (u32)(o[0] + d * conv.dilation[0]) < (u32)conv.sizes[0] &&
                          (u32)(o[1] + r * conv.dilation[1]) < (u32)conv.sizes[1];
          if (in) all |= along << shift;
          shift += conv.kernel[2];
        }
      taps[i] = exists ? all : 0;
#endif
    }
  }
  PL_INLINE void load(u32 to) {
    const ConvArgs& conv = *p;
    const int dd = tap.d * conv.dilation[0], dr = tap.r * conv.dilation[1], ds = tap.s * conv.dilation[2];
    const i64 offset = dd * conv.ss[0] + dr * conv.ss[1] + ds * conv.ss[2] + tap.c;
    const bool inside = tap.idx < n_taps;
#pragma unroll
    for (int i = 0; i < PER; i++) {
      const int row = threadIdx.x / CHUNKS + i * (THREADS / CHUNKS);
#if MANY_TAPS
      const bool ok = inside && (u32)(origin[i][0] + dd) < (u32)conv.sizes[0] &&
                      (u32)(origin[i][1] + dr) < (u32)conv.sizes[1] && (u32)(origin[i][2] + ds) < (u32)conv.sizes[2];
#else
      const bool ok = inside && (taps[i] >> tap.idx & 1);
#endif
      if (!RAGGED || row < BM) {
        const T* from = ok ? at[i] + offset : whole;
        const u32 there = to + place(row, threadIdx.x % CHUNKS);
        if (is_aligned) {
#if X_CACHED
          copy_async16_cached(there, from, ok);
#else
          copy_async16(there, from, ok);
#endif
        } else {
#pragma unroll 1
          for (int e = 0; e < EPC; e++) store_shared(there + e * (u32)sizeof(T), ok ? from[e] : Zero<T>::make());
        }
      }
    }
    tap.advance(conv, KSTEP);
  }
  PL_INLINE void fetch() {}
  PL_INLINE void store(u32) {}
};

// Pixels as rows, element by element: few channels, channels outermost, another type.
template <class T> struct PixelsStrided {
  static constexpr int PER = (BM * CHUNKS + THREADS - 1) / THREADS;
  static constexpr int ROWS = BM > THREADS ? BM / THREADS : 1;   // rows of a thread
  static constexpr bool THROUGH_REGISTERS = true;
  const ConvArgs* p;
  const T* at[ROWS];
  int origin[ROWS][3];
  int k;
  u32 w[PER][4];

  PL_INLINE void start(const ConvArgs& conv, const T* x, int m0, int rows, int group, int k0) {
    p = &conv;
    k = k0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const int row = threadIdx.x % BM + i * THREADS;
      int q[4];
      pixel(conv, m0 + row, q);
      i64 offset = (i64)q[0] * conv.sn + (i64)group * conv.c * conv.sc;
#pragma unroll
      for (int axis = 0; axis < 3; axis++) {
        origin[i][axis] = q[axis + 1] * conv.stride[axis] - conv.pad[axis];
        offset += (i64)origin[i][axis] * conv.ss[axis];
        if (row >= rows) origin[i][axis] = -0x40000000;
      }
      at[i] = x + offset;
    }
  }
  PL_INLINE void load(u32) {}
  PL_INLINE void fetch() {
    const ConvArgs& conv = *p;
    const int c = FEW_C ? FEW_C : conv.c;
#pragma unroll
    for (int i = 0; i < PER; i++) {
      const int idx = threadIdx.x + i * THREADS, mine = i % ROWS;
      const int first = k + idx / BM * EPC;
      T v[EPC];
      // Places in k one after the other: channel first, then tap.
      int tap = first / c, channel = first - tap * c;
      int s = tap % conv.kernel[2], rest = tap / conv.kernel[2];
      int r = rest % conv.kernel[1], d = rest / conv.kernel[1];
#pragma unroll
      for (int e = 0; e < EPC; e++) {
        const int dd = d * conv.dilation[0], dr = r * conv.dilation[1], ds = s * conv.dilation[2];
        const bool ok = first + e < conv.k && (u32)(origin[mine][0] + dd) < (u32)conv.sizes[0] &&
                        (u32)(origin[mine][1] + dr) < (u32)conv.sizes[1] &&
                        (u32)(origin[mine][2] + ds) < (u32)conv.sizes[2] && (BM * CHUNKS % THREADS == 0 || idx < BM * CHUNKS);
        v[e] = Zero<T>::make();
        if (ok) v[e] = at[mine][dd * conv.ss[0] + dr * conv.ss[1] + ds * conv.ss[2] + channel * conv.sc];
        if (++channel == c) {
          channel = 0;
          if (++s == conv.kernel[2]) {
            s = 0;
            if (++r == conv.kernel[1]) { r = 0; d++; }
          }
        }
      }
      Packed<ELEM, T>::pack(w[i], v);
    }
    k += KSTEP;
  }
  PL_INLINE void store(u32 to) { store_chunks<BM>(to, w); }
};

PL_INLINE void epilogue_row(const ConvArgs& p, const Addresses& a, float (&v)[8], int m, int n, int count) {
  Place at;
  at.m = m;
  const TileEpilogueArgs& f = p.epilogue;
  bool all_linear = !NEED_PLACE && f.out.linear && (!EPILOGUE_RESIDUAL || f.residual.linear);
#pragma unroll
  for (int i = 0; i < N_EXTRA; i++) all_linear = all_linear && f.extra[i].linear;
  if (!all_linear) pixel(p, m, at.q);
  epilogue8(f, a, v, at, n, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
conv(const void* x, const void* w, EPILOGUE_ARGUMENTS, const __grid_constant__ ConvArgs p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = EPILOGUE_ADDRESSES;
  extern __shared__ __align__(128) u8 memory[];
  const Share share(p);
  const Tile& t = share.tile;
  const int group = share.product, k0 = share.from * KSTEP;

  RowsWide<BN> b;
  b.start((const ELEM*)w + ((i64)group * p.n + t.n0) * p.k_row, p.k_row, t.columns, k0, p.k_row);
#if X_WIDE
  PixelsWide<X_T> a;
#else
  PixelsStrided<X_T> a;
#endif
  a.start(p, (const X_T*)x, t.m0, t.rows, group, k0);
  Accumulators acc;
  sum_up(acc, a, b, share.until - share.from, shared_address(memory), true);
  give_out(acc, (ACC*)memory, t, share.split, [&](int row, int column, ACC(&v)[8]) {
    const int n = t.n0 + column;
#if SPLIT_MEMORY
    leave_part(p, share, parts, t.m0 + row, n, v);
#else
    float sums[8];
    to_floats(sums, v);
    epilogue_row(p, addresses, sums, t.m0 + row, group * p.n + n, p.n - n < 8 ? p.n - n : 8);
#endif
  });
#endif
}

#if SPLIT_MEMORY
extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
conv_reduce(const void* x, const void* w, EPILOGUE_ARGUMENTS, const __grid_constant__ ConvArgs p) {
#if defined(__CUDA_ARCH__)
  const Addresses addresses = EPILOGUE_ADDRESSES;
  add_parts(p, parts, [&](int group, int row, int n, float(&v)[8], int count) {
    epilogue_row(p, addresses, v, row, group * p.n + n, count);
  });
#endif
}
#endif
