// Weights of 4 or 8 bits in blocks with a scale each, as formats/codes.rs packs them: how a lane reads them, and what they
// stand for.
//
// Set from outside:
//   BITS         4 or 8
//   GROUP        neighbours along k that four lanes share: 16, or 32 where blocks are whole groups of 32
//   BLOCK        elements along k with one scale; 0: one scale a column
//   ZEROS        1: zero points are an operand; 0: all are ZERO
//   S_T          what scales are stored in
//
// A tile is 16 columns of the weight. Its chunks are 16 bytes of each lane of a warp, one after the other along k: STEPS
// fragments of 16 columns and a depth of 16. Lane l has columns l / 4 and l / 4 + 8, and of each GROUP the elements from
// GROUP / 4 * (l % 4) on, four in each step. Integers with a sign are stored with the sign bit turned over, so that
// all count from 0.

constexpr int STEPS = 16 / BITS;
constexpr int DEPTH = 16 * STEPS;  // of a chunk
// Steps with one scale at least, as many as a chunk has at most.
constexpr int SEGMENT = BLOCK == 0 || BLOCK % DEPTH == 0 ? STEPS : BLOCK % 32 == 0 ? 2 : 1;
constexpr int SEGMENTS = STEPS / SEGMENT;

// Scales and zero points of a lane's two columns in one segment.
struct Scaling {
  S_T scale[2];
#if ZEROS
  u8 zero[2];
#endif
};
template <class T> struct alignas(2 * sizeof(T)) Two { T v[2]; };

// Where a lane finds those of a tile: blocks one after the other, of each the columns, the two of a lane side by side. The
// last chunk of a tile may ask for blocks that the tile does not have, which meet zeros of x: those of the next tile are
// read, or what the packing leaves behind the last.
struct Scalings {
  const Two<S_T>* scales;
  const Two<u8>* zeros;

  PL_INLINE Scalings() {}
  PL_INLINE Scalings(const S_T* s, const u8* z, int tile, int n_blocks, int lane) {
    const i64 at = (i64)tile * n_blocks * 8 + (lane >> 2);
    scales = (const Two<S_T>*)s + at;
    zeros = (const Two<u8>*)z + at;
  }

  PL_INLINE void advance(int by) {
    scales += by;
    zeros += by;
  }

  // How far segment `i` of a chunk is from the first.
  static PL_INLINE int place(int chunk, int i) {
#if BLOCK == 0
    return 0;
#else
    return (chunk * SEGMENTS + i) / (BLOCK / (16 * SEGMENT)) * 8;
#endif
  }

  PL_INLINE void load(Scaling& to, int chunk, int i) const {
    const Two<S_T> s = scales[place(chunk, i)];
    to.scale[0] = s.v[0];
    to.scale[1] = s.v[1];
#if ZEROS
    const Two<u8> z = zeros[place(chunk, i)];
    to.zero[0] = z.v[0];
    to.zero[1] = z.v[1];
#endif
  }
};

// A lane's 8 elements of one step, less their zero points, as the fragment of a product that takes H: exact, since they
// are whole numbers up to 255. Words hold first and second columns in turns, two neighbours along k in each half.
template <class H> struct Magic;
// An integer below 1024 under the exponent of 1024; 1024 and 64 with a zero point, negative; 1 and 1/16.
template <> struct Magic<f16> {
  static constexpr u32 exponent = 0x64006400u, one = 0x3c003c00u, sixteenth = 0x2c002c00u;
};
// An integer below 128 under the exponent of 128.
template <> struct Magic<bf16> {
  static constexpr u32 exponent = 0x43004300u, one = 0x3f803f80u, sixteen = 0x41804180u, minus = 0xc300c300u;
};

// What is added to take the zero points off, prepared once a segment.
struct Offsets { u32 first, second; };

// `none` is 0, which the compiler must not know: numbers that it knows it puts into registers for each instruction anew.
template <class H> PL_INLINE Offsets offsets_of(const Scaling& s, u32 none);
template <> PL_INLINE Offsets offsets_of<f16>(const Scaling& s, u32 none) {
#if ZEROS
  const u32 a = s.zero[0], b = s.zero[1];
#else
  const u32 a = ZERO + none, b = ZERO + none;
#endif
#if BITS == 4
  return {(0xe400u + a) * 0x10001u, (0xd400u + (b << 4)) * 0x10001u};
#else
  return {(0xe400u + a) * 0x10001u, (0xe400u + b) * 0x10001u};
#endif
}
#if __CUDA_ARCH__ >= 800
template <> PL_INLINE Offsets offsets_of<bf16>(const Scaling& s, u32 none) {
#if ZEROS
  const u32 a = s.zero[0], b = s.zero[1];
#else
  const u32 a = ZERO + none, b = ZERO + none;
#endif
#if BITS == 4
  return {(0xc300u + a) * 0x10001u, (0xc300u + b) * 0x10001u};
#else
  return {Pair<bf16>::pack(-(float)a, -(float)a), Pair<bf16>::pack(-(float)b, -(float)b)};
#endif
}
#endif

template <class H> PL_INLINE void fragment_of(u32 (&f)[4], const u32 (&words)[4], int step, Offsets o, u32 none);
template <> PL_INLINE void fragment_of<f16>(u32 (&f)[4], const u32 (&words)[4], int step, Offsets o, u32 none) {
  typedef Magic<f16> M;
  const u32 exponent = M::exponent + none;
#if BITS == 4
  // The upper integers of bytes are 16 times as large under the same exponent.
  const u32 low = words[step], high = low >> 8;
  f[0] = fused2<f16>((low & 0x000f000fu) | exponent, M::one, o.first);
  f[1] = fused2<f16>((low & 0x00f000f0u) | exponent, M::sixteenth, o.second);
  f[2] = fused2<f16>((high & 0x000f000fu) | exponent, M::one, o.first);
  f[3] = fused2<f16>((high & 0x00f000f0u) | exponent, M::sixteenth, o.second);
#else
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 word = words[2 * step + i];
    f[2 * i] = fused2<f16>(__byte_perm(word, exponent, 0x7150u), M::one, o.first);
    f[2 * i + 1] = fused2<f16>(__byte_perm(word, exponent, 0x7352u), M::one, o.second);
  }
#endif
}
#if __CUDA_ARCH__ >= 800
template <> PL_INLINE void fragment_of<bf16>(u32 (&f)[4], const u32 (&words)[4], int step, Offsets o, u32 none) {
  typedef Magic<bf16> M;
  const u32 exponent = M::exponent + none;
#if BITS == 4
  const u32 word = words[step];
#pragma unroll
  for (int i = 0; i < 4; i++)
    f[i] = fused2<bf16>(((word >> 4 * i) & 0x000f000fu) | exponent, M::one, i & 1 ? o.second : o.first);
#else
  // Eight bits are one too many under an exponent: halves of four.
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u32 bytes = __byte_perm(words[2 * step + i / 2], 0u, i & 1 ? 0x7372u : 0x7170u);
    const u32 low = fused2<bf16>((bytes & 0x000f000fu) | exponent, M::one, M::minus);
    const u32 high = fused2<bf16>(((bytes >> 4) & 0x000f000fu) | exponent, M::one, M::minus);
    const u32 whole = fused2<bf16>(high, M::sixteen, low);
    f[i] = fused2<bf16>(whole, M::one, i & 1 ? o.second : o.first);
  }
#endif
}
#endif
