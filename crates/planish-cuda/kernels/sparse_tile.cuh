// Chunks of weights that are 2:4 sparse for few_rows.cu, as formats/sparse.rs packs them: two products of the tensor cores, and
// which two of each four neighbours along k their elements are.
//
// Set from outside: X_T, what rows and weight are stored in; TURN, from a chunk of a warp to its next.

constexpr int DEPTH = 64;
constexpr int GROUP = 32;
constexpr int SHARE = 8;          // elements of a row that a lane copies at once
constexpr int SLOT_BYTES = 1152;

// A lane's part of eight rows of x in a group, as the second factor of a product.
struct RowParts {
  u32 v[4];

  // Lanes read what others copied: the row, and the byte of it in a group, that a lane gives the address of.
  static constexpr bool ARE_OTHERS = true;
  static PL_INLINE int row_of(int lane) { return lane & 7; }
  static PL_INLINE int byte_of(int group, int lane) { return group * (GROUP * 2) + (lane >> 3) * 16; }
  PL_INLINE void read(const u8* at) { load_matrix4(v, shared_address(at)); }
};

struct Tile {
  const u8* chunks;

  // A lane's part of a chunk.
  struct Own {
    uint4 values[2];
    u32 places;
  };

  PL_INLINE void start(const FewRowsArgs& a, const void* weight, const void*, const void*, int tile, int chunk, int lane) {
    chunks = (const u8*)weight + ((i64)tile * a.n_chunks + chunk) * SLOT_BYTES;
  }

  // The chunk that lies `turns` after the one that pointers stand at.
  PL_INLINE void fetch(u32 to, int turns, int, int lane) const {
    const u8* from = chunks + turns * TURN * SLOT_BYTES;
    copy_async16(to + lane * 16, from + lane * 16, true);
    copy_async16(to + 512 + lane * 16, from + 512 + lane * 16, true);
    copy_async_few<4>(to + 1024 + lane * 4, from + 1024 + lane * 4);
  }

  PL_INLINE void advance(int turns) { chunks += turns * TURN * SLOT_BYTES; }

  static PL_INLINE Own own(const u8* slot, int lane) {
    return {{((const uint4*)slot)[lane], ((const uint4*)(slot + 512))[lane]}, ((const u32*)(slot + 1024))[lane]};
  }

  template <int M8> PL_INLINE void multiply_group(float (&sum)[M8][4], const u8*, const Own& own, int group,
                                                  const RowParts (&rows)[M8], int) const {
    const uint4 values = own.values[group];
    const u32 w[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int j = 0; j < M8; j++) {
      if (group == 0) Sparse<X_T>::multiply<0>(sum[j], w, rows[j].v, own.places);
      else Sparse<X_T>::multiply<1>(sum[j], w, rows[j].v, own.places);
    }
  }
};
