// Depthwise convolution with channels innermost: a thread has V channels of P neighbouring outputs of a row, reads
// each pixel of its windows once, and goes on with the program behind.
//
// Set from outside:
//   X_T W_T Y_T    storage
//   V P            channels and outputs of a thread
//   KD KH KW       taps;  SW: the step along a row, DW: the distance of taps along it
//   ENDING…        the program behind (see ending.rs)
//
// Integers: 0 the number of threads; from 1 on the divisors of the threads' axes: vectors of channels, groups of
// columns, rows, depths; 13 channels, 14 columns of the output; 15 the input's depths, rows and columns; 18 steps
// of depth and row, 20 distances of taps of depth and row; 22 padding of depth, row and column; 25 strides of
// sample, depth, row and column of the input, 29 of the output.

#define SPAN ((P - 1) * SW + (KW - 1) * DW + 1)

extern "C" __global__ void __launch_bounds__(256)
depthwise(const X_T* x, const W_T* w, Y_T* y, const Ints a ENDING_PARAMS) {
  wait_for_inputs();
  let_next_begin();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.v[0]) return;
  int at[4];
#pragma unroll
  for (int i = 0; i < 4; i++) at[i] = po_take(rest, a.v[1 + 3 * i], a.v[2 + 3 * i], a.v[3 + 3 * i]);
  const int c = at[0] * V, column = at[1] * P, row = at[2], depth = at[3], n = (int)rest;
  const int channels = a.v[13], left = channels - c;
  float sum[P][V];
#pragma unroll
  for (int p = 0; p < P; p++) {
#pragma unroll
    for (int j = 0; j < V; j++) sum[p][j] = 0.0f;
  }
  const X_T* from = x + ((i64)n * a.v[25] + c);
  const int first = column * SW - a.v[24];
  const bool inside = first >= 0 && first + SPAN <= a.v[17];
#pragma unroll 1
  for (int d = 0; d < KD; d++) {
    const int z = depth * a.v[18] + d * a.v[20] - a.v[22];
    if (z < 0 || z >= a.v[15]) continue;
#pragma unroll 1
    for (int h = 0; h < KH; h++) {
      const int r = row * a.v[19] + h * a.v[21] - a.v[23];
      if (r < 0 || r >= a.v[16]) continue;
      const X_T* line = from + ((i64)z * a.v[26] + (i64)r * a.v[27]);
      const W_T* taps = w + (i64)((d * KH + h) * KW) * channels + c;
      float v[SPAN][V];
#pragma unroll
      for (int i = 0; i < SPAN; i++) {
        const int q = first + i;
        // Of pixels between the taps nothing is read.
        const bool used = DW == 1 || P > 1 || i % DW == 0;
        if (used && (inside || (q >= 0 && q < a.v[17]))) {
          po_load_part<X_T, V>(v[i], line + (i64)q * a.v[28], left, 0.0f);
        } else {
#pragma unroll
          for (int j = 0; j < V; j++) v[i][j] = 0.0f;
        }
      }
#pragma unroll
      for (int k = 0; k < KW; k++) {
        float t[V];
        po_load_part<W_T, V>(t, taps + (i64)k * channels, left, 0.0f);
#pragma unroll
        for (int p = 0; p < P; p++) {
#pragma unroll
          for (int j = 0; j < V; j++) sum[p][j] += v[p * SW + k * DW][j] * t[j];
        }
      }
    }
  }
  Y_T* to = y + ((i64)n * a.v[29] + (i64)depth * a.v[30] + (i64)row * a.v[31] + c);
#pragma unroll
  for (int p = 0; p < P; p++) {
    if (column + p >= a.v[14]) break;
    ending(sum[p], a, n, depth, row, column + p, c, left ENDING_ARGS);
    po_store_part<Y_T, V>(to + (i64)(column + p) * a.v[32], sum[p], left);
  }
}
