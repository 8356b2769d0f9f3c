// Chunks of weights of few bits for few_rows.cu. nbits.cuh stands in front.
//
// Set from outside, besides: H (what products are taken in, f16 or bf16) and X_T (what rows are stored in; rows of f32 become
// three numbers of bf16 each, whose sum they are); TURN, from a chunk of a warp to its next; SCALED (1: weights are rounded to
// H with their scales, which are stored so, before they are multiplied; 0: sums of each block are scaled).

constexpr int PARTS = sizeof(X_T) == 4 ? 3 : 1;
constexpr int SHARE = GROUP / 4;          // elements of a lane in a group

// A lane's part of eight rows of x in a group.
struct RowParts {
  u32 v[PARTS][SHARE / 2];

  // Lanes read from shared memory what they copied themselves, so that none waits for another.
  static constexpr bool ARE_OTHERS = false;
  static PL_INLINE int row_of(int lane) { return lane >> 2; }
  static PL_INLINE int byte_of(int group, int lane) { return (group * GROUP + SHARE * (lane & 3)) * (int)sizeof(X_T); }
  PL_INLINE void read(const u8* at) {
    X_T e[SHARE];
    po_fetch<X_T, SHARE, true>(e, (const X_T*)at, true, SHARE);
    set(e);
  }

  PL_INLINE void set(const X_T (&e)[SHARE]) {
#pragma unroll
    for (int i = 0; i < SHARE / 2; i++) {
      if constexpr (PARTS == 1) {
        union { X_T each[2]; u32 word; } u;
        u.each[0] = e[2 * i];
        u.each[1] = e[2 * i + 1];
        v[0][i] = u.word;
      } else {
        // The nearest number of bf16, that of what is left, and that of what is left then.
        float a = to_f32(e[2 * i]), b = to_f32(e[2 * i + 1]);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
          v[p][i] = Pair<bf16>::pack(a, b);
          a -= Pair<bf16>::lo(v[p][i]);
          b -= Pair<bf16>::hi(v[p][i]);
        }
      }
    }
  }
};

#if SCALED
// A number of 16 bits twice.
PL_INLINE u32 both_halves(S_T v) {
  union { S_T each[2]; u32 word; } u;
  u.each[0] = u.each[1] = v;
  return u.word;
}
#endif

// Each lane copies what it reads itself, so that no lane waits for another: 16 bytes of integers, then scales and zero points
// of each segment. One scale a column stays in registers.
constexpr int SCALE_BYTES = (int)sizeof(Two<S_T>);
constexpr int SEGMENT_BYTES = 32 * (SCALE_BYTES + 4 * ZEROS);
constexpr int SLOT_BYTES = 512 + (BLOCK ? SEGMENTS * SEGMENT_BYTES : 0);
// Whether each segment is a block of its own: pointers go on with the chunks then.
constexpr bool IN_STEP = BLOCK == 16 * SEGMENT;

struct Tile {
  typedef uint4 Own;
  static PL_INLINE Own own(const u8* slot, int lane) { return ((const uint4*)slot)[lane]; }

  const uint4* codes;
  Scalings scalings;
  Scaling whole;
  u32 none;

  PL_INLINE void start(const FewRowsArgs& a, const void* weight, const void* scales, const void* zeros, int tile, int chunk,
                       int lane) {
    none = (u32)a.m >> 31;
    codes = (const uint4*)weight + ((i64)tile * a.n_chunks + chunk) * 32 + lane;
    scalings = Scalings((const S_T*)scales, (const u8*)zeros, tile, a.n_blocks, lane);
    if (IN_STEP) scalings.advance(chunk * SEGMENTS * 8);
    if (BLOCK == 0) scalings.load(whole, 0, 0);
  }

  // The chunk that lies `turns` after the one that pointers stand at.
  PL_INLINE void fetch(u32 to, int turns, int chunk, int lane) const {
    copy_async16(to + lane * 16, codes + turns * TURN * 32, true);
#if BLOCK
#pragma unroll
    for (int i = 0; i < SEGMENTS; i++) {
      const int place = IN_STEP ? (turns * TURN * SEGMENTS + i) * 8 : Scalings::place(chunk, i);
      const u32 at = to + 512 + i * SEGMENT_BYTES;
      copy_async_few<SCALE_BYTES>(at + lane * SCALE_BYTES, scalings.scales + place);
#if ZEROS
      // Four bytes are the least: those of two lanes' columns.
      copy_async_few<4>(at + 32 * SCALE_BYTES + lane * 4, (const void*)((u64)(scalings.zeros + place) & ~3ull));
#endif
    }
#endif
  }

  PL_INLINE void advance(int turns) {
    codes += turns * TURN * 32;
    if (IN_STEP) scalings.advance(turns * TURN * SEGMENTS * 8);
  }

  PL_INLINE Scaling scaling(const u8* slot, int i, int lane) const {
#if BLOCK
    const u8* at = slot + 512 + i * SEGMENT_BYTES;
    const Two<S_T> s = ((const Two<S_T>*)at)[lane];
    Scaling by;
    by.scale[0] = s.v[0];
    by.scale[1] = s.v[1];
#if ZEROS
    const u32 z = ((const u32*)(at + 32 * SCALE_BYTES))[lane] >> ((lane >> 2 & 1) * 16);
    by.zero[0] = (u8)z;
    by.zero[1] = (u8)(z >> 8);
#endif
    return by;
#else
    return whole;
#endif
  }

  // Adds the products of a group with eights of rows; `own` is the lane's part of the chunk.
  template <int M8> PL_INLINE void multiply_group(float (&sum)[M8][4], const u8* slot, const uint4& own, int group,
                                                  const RowParts (&rows)[M8], int lane) const {
    const u32 words[4] = {own.x, own.y, own.z, own.w};
    const Scaling by = scaling(slot, group * SEGMENTS / (DEPTH / GROUP), lane);
    const Offsets offsets = offsets_of<H>(by, none);
#if SCALED
    // Many rows: scaling four words of a step costs less than scaling all their sums.
    const u32 scales[2] = {both_halves(by.scale[0]), both_halves(by.scale[1])};
#pragma unroll
    for (int q = 0; q < GROUP / 16; q++) {
      u32 w[4];
      fragment_of<H>(w, words, group * (GROUP / 16) + q, offsets, none);
      // A product and minus zero.
#pragma unroll
      for (int e = 0; e < 4; e++) w[e] = fused2<H>(w[e], scales[e & 1], 0x80008000u);
#pragma unroll
      for (int j = 0; j < M8; j++) multiply<H>(sum[j], w, rows[j].v[0][2 * q], rows[j].v[0][2 * q + 1]);
    }
#else
    float acc[M8][4];
#pragma unroll
    for (int j = 0; j < M8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[j][e] = 0.0f;
#pragma unroll
    for (int q = 0; q < GROUP / 16; q++) {
      u32 w[4];
      fragment_of<H>(w, words, group * (GROUP / 16) + q, offsets, none);
      // The smallest part first.
#pragma unroll
      for (int p = PARTS - 1; p >= 0; p--)
#pragma unroll
        for (int j = 0; j < M8; j++) multiply<H>(acc[j], w, rows[j].v[p][2 * q], rows[j].v[p][2 * q + 1]);
    }
    const float first = to_f32(by.scale[0]), second = to_f32(by.scale[1]);
#pragma unroll
    for (int j = 0; j < M8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sum[j][e] = fmaf(acc[j][e], e < 2 ? first : second, sum[j][e]);
#endif
  }
};
