// Chunks of weights of which two of each four neighbours along k are zero, for few_rows.cu, as formats/sparse.rs packs them.
//
// Set from outside, besides: X_T (f16 or bf16, the weight's type too), WIDE, TURN as in few_rows.cu.
//
// A chunk has a depth of 32: 16 bytes of each lane, which are the fragment of the numbers that are kept, then 64 bytes that say
// which these are. Lanes 2 i and 2 i + 1 of four share 16 neighbours along k; of each four of these the even lane has the first
// two and the odd lane the others.

constexpr int DEPTH = 32;
constexpr int TURN = WARPS * SPLIT;
constexpr int CHUNK_BYTES = 512 + 64;
constexpr int SLOT_BYTES = 512 + 128;

// A lane's part of eight rows of x in a chunk.
struct RowParts {
  u32 v[4];

  static PL_INLINE int first(int lane) { return 8 * (lane & 3); }

  PL_INLINE void load(const X_T* at, bool there, int left) {
    X_T e[8];
    po_fetch<X_T, 8, WIDE>(e, at, there && left > 0, left);
    u32 own[4];
#pragma unroll
    for (int i = 0; i < 4; i++) own[i] = (u32)e[2 * i].bits | (u32)e[2 * i + 1].bits << 16;
    // Each of two lanes has eight neighbours, and gives the other what is its own.
    const bool odd = threadIdx.x & 1;
    const u32 a = __shfl_xor_sync(~0u, odd ? own[0] : own[1], 1), b = __shfl_xor_sync(~0u, odd ? own[2] : own[3], 1);
    v[0] = odd ? a : own[0];
    v[1] = odd ? b : own[2];
    v[2] = odd ? own[1] : a;
    v[3] = odd ? own[3] : b;
  }
};

struct Tile {
  const u8* chunks;

  PL_INLINE void start(const FewRowsArgs& a, const void* weight, const void*, const void*, int tile, int chunk, int) {
    chunks = (const u8*)weight + ((i64)tile * a.n_chunks + chunk) * CHUNK_BYTES;
  }

  PL_INLINE void fetch(u32 to, int turns, int, int lane) const {
    const u8* from = chunks + turns * TURN * CHUNK_BYTES;
    copy_async16(to + lane * 16, from + lane * 16, true);
    // Two of four lanes tell; the others read the same again.
    copy_async_few<4>(to + 512 + lane * 4, from + 512 + ((lane >> 2) * 2 + (lane & 1)) * 4);
  }

  PL_INLINE void advance(int turns) { chunks += turns * TURN * CHUNK_BYTES; }

  template <int M8> PL_INLINE void multiply_chunk(float (&sum)[M8][4], const u8* slot, const RowParts (&rows)[M8], int lane) const {
    const uint4 own = ((const uint4*)slot)[lane];
    const u32 kept[4] = {own.x, own.y, own.z, own.w}, which = ((const u32*)(slot + 512))[lane];
#pragma unroll
    for (int j = 0; j < M8; j++) multiply_sparse<X_T>(sum[j], kept, rows[j].v, which);
  }
};
