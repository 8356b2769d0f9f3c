// A weight of 4 or 8 bits as numbers, a row for each column with k innermost, as products of many rows read it. nbits.cuh
// stands in front.
//   Y_T          what numbers are stored in: f16, bf16 or float
// A warp takes a chunk of a tile; rows are `row` long, and zero behind k.

constexpr int SHARE = GROUP / 4;

extern "C" __global__ void __launch_bounds__(256)
nbits_expand(const uint4* weight, const S_T* scales, const u8* zeros, Y_T* y, const ExpandArgs a) {
  const int lane = threadIdx.x & 31;
  const i64 at = (i64)blockIdx.x * 8 + (threadIdx.x >> 5);
  let_next_begin();
  wait_for_inputs();
  if (at >= (i64)a.n_tiles * a.n_chunks) return;
  const int tile = (int)(at / a.n_chunks), chunk = (int)(at % a.n_chunks);
  const uint4 codes = load_once16(weight + at * 32 + lane);
  const Scalings scalings(scales, zeros, tile, a.n_blocks, lane);
  const u32 words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < DEPTH / GROUP; i++) {
    const int k = chunk * DEPTH + i * GROUP + SHARE * (lane & 3);
    float v[2][SHARE];
#pragma unroll
    for (int q = 0; q < GROUP / 16; q++) {
      const int step = i * (GROUP / 16) + q;
      Scaling by;
      scalings.load(by, chunk, step / SEGMENT);
      u32 w[4];
      // Through f16, which every architecture has.
      fragment_of<f16>(w, words, step, offsets_of<f16>(by, 0u), 0u);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float scale = to_f32(by.scale[e & 1]);
        v[e & 1][4 * q + e / 2 * 2] = Pair<f16>::lo(w[e]) * scale;
        v[e & 1][4 * q + e / 2 * 2 + 1] = Pair<f16>::hi(w[e]) * scale;
      }
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const int column = tile * 16 + 8 * c + (lane >> 2);
      if (column >= a.n || k >= a.row) continue;
#pragma unroll
      for (int e = 0; e < SHARE; e++) v[c][e] = k + e < a.k ? v[c][e] : 0.0f;
      const int left = a.row - k;
      po_store_part<Y_T, SHARE>(y + (i64)column * a.row + k, v[c], left);
    }
  }
}
