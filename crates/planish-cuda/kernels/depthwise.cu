// Depthwise convolution with channels innermost: a thread has V channels of P neighbouring outputs of a row, reads
// each pixel of its windows once, and goes on with the program after.
//
// Set from outside:
//   X_T W_T Y_T    storage
//   V P            channels and outputs of a thread
//   KD KH KW       taps;  SW: the step along a row, DW: the distance of taps along it
//   ROWS_AT_ONCE   rows of taps whose pixels are loaded together
//   THREADS        of a block
//   EPILOGUE…      the program after (see epilogue.rs)

#define SPAN ((P - 1) * SW + (KW - 1) * DW + 1)

template <bool WIDE> PL_INLINE void make(const X_T* x, const W_T* w, Y_T* y, const DepthwiseArgs& a EPILOGUE_PARAMS) {
  int at[4], n;
  if (!po_thread<THREADS>(a.threads, at, n)) return;
  const int c = at[0] * V, column = at[1] * P, row = at[2], depth = at[3];
  const int channels = a.channels, left = channels - c;
  float sum[P][V];
#pragma unroll
  for (int p = 0; p < P; p++) {
#pragma unroll
    for (int j = 0; j < V; j++) sum[p][j] = 0.0f;
  }
  const int first = column * SW - a.windows[2].pad_begin;
  const X_T* from = x + ((i64)n * a.x.n + c) + (i64)first * a.x.w;
  bool columns[SPAN];
#pragma unroll
  // Of pixels between the taps nothing is read.
  for (int i = 0; i < SPAN; i++) columns[i] = (P > 1 || i % DW == 0) && first + i >= 0 && first + i < a.windows[2].input;
#pragma unroll 1
  for (int d = 0; d < KD; d++) {
    const int z = depth * a.windows[0].stride + d * a.windows[0].dilation - a.windows[0].pad_begin;
    const bool deep = z >= 0 && z < a.windows[0].input;
#pragma unroll 1
    for (int h0 = 0; h0 < KH; h0 += ROWS_AT_ONCE) {
      X_T pixels[ROWS_AT_ONCE][SPAN][V];
      W_T taps[ROWS_AT_ONCE][KW][V];
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; i++) {
        const int h = h0 + i, r = row * a.windows[1].stride + h * a.windows[1].dilation - a.windows[1].pad_begin;
        const bool there = deep && h < KH && r >= 0 && r < a.windows[1].input;
        const X_T* line = from + ((i64)z * a.x.d + (i64)r * a.x.h);
        const W_T* beside = w + (i64)((d * KH + h) * KW) * channels + c;
#pragma unroll
        for (int j = 0; j < SPAN; j++)
          po_fetch<X_T, V, WIDE>(pixels[i][j], line + (i64)j * a.x.w, there && columns[j], left);
#pragma unroll
        for (int k = 0; k < KW; k++) po_fetch<W_T, V, WIDE>(taps[i][k], beside + (i64)k * channels, h < KH, left);
      }
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; i++) {
#pragma unroll
        for (int k = 0; k < KW; k++) {
#pragma unroll
          for (int p = 0; p < P; p++) {
#pragma unroll
            for (int j = 0; j < V; j++)
              sum[p][j] += po_widen(pixels[i][p * SW + k * DW][j]) * po_widen(taps[i][k][j]);
          }
        }
      }
    }
  }
  Y_T* to = y + ((i64)n * a.y.n + (i64)depth * a.y.d + (i64)row * a.y.h + c);
#pragma unroll
  for (int p = 0; p < P; p++) {
    if (column + p >= a.windows[2].output) break;
    epilogue(sum[p], a.epilogue, n, depth, row, column + p, c, left EPILOGUE_ARGS);
    po_store_part<Y_T, V>(to + (i64)(column + p) * a.y.w, Stored<Y_T, V>(sum[p]).v, left);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
depthwise(const X_T* x, const W_T* w, Y_T* y, const DepthwiseArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  // All vectors begin at multiples of their size, or none is taken to.
  const int strides = a.channels | a.x.n | a.x.d | a.x.h | a.x.w;
  const bool wide = strides % V == 0 && (u64)x % (V * sizeof(X_T)) == 0 && (u64)w % (V * sizeof(W_T)) == 0;
  if (wide) make<true>(x, w, y, a EPILOGUE_ARGS);
  else make<false>(x, w, y, a EPILOGUE_ARGS);
}
