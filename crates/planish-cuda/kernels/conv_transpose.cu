// Transposed convolution on the plain units, in any layout: a thread has V output channels of one pixel and goes
// over the taps that reach it and the input channels of its group.
//
// Set from outside:
//   X_T W_T Y_T    storage
//   V              output channels of a thread
//   ENDING…        the program after (see ending.rs)
//
// Weights are packed as tap, input channel, output channel of the group. Integers: 0 the number of threads; from 1
// on the divisors of the threads' axes: vectors of a group's output channels, groups, columns, rows, depths; 16
// output channels of a group, 17 input channels of a group; from 18 on for depth, row and column each: the
// input's size, taps, stride, dilation, padding; 33 strides of sample, channel, depth, row and column of the
// input, 38 of the output.
extern "C" __global__ void __launch_bounds__(256)
conv_transpose(const X_T* x, const W_T* w, Y_T* y, const Ints a ENDING_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  int at[5], n;
  if (!po_thread<256>(a, at, n)) return;
  const int c = at[0] * V, group = at[1];
  const int out[3] = {at[4], at[3], at[2]};
  const int per_group = a.v[16], inputs = a.v[17], left = per_group - c;
  float sum[V];
#pragma unroll
  for (int j = 0; j < V; j++) sum[j] = 0.0f;
  const X_T* from = x + ((i64)n * a.v[33] + (i64)group * inputs * a.v[34]);
  const i64 tap_step = (i64)inputs * (per_group * a.v[4]);
  const W_T* taps = w + (i64)group * per_group + c;
  for (int d = 0; d < a.v[19]; d++) {
    const int zd = out[0] + a.v[22] - d * a.v[21];
    if (zd < 0 || zd % a.v[20] != 0 || zd / a.v[20] >= a.v[18]) continue;
    for (int h = 0; h < a.v[24]; h++) {
      const int zh = out[1] + a.v[27] - h * a.v[26];
      if (zh < 0 || zh % a.v[25] != 0 || zh / a.v[25] >= a.v[23]) continue;
      for (int k = 0; k < a.v[29]; k++) {
        const int zw = out[2] + a.v[32] - k * a.v[31];
        if (zw < 0 || zw % a.v[30] != 0 || zw / a.v[30] >= a.v[28]) continue;
        const X_T* pixel = from + ((i64)(zd / a.v[20]) * a.v[35] + (i64)(zh / a.v[25]) * a.v[36] + (i64)(zw / a.v[30]) * a.v[37]);
        const W_T* tap = taps + ((d * a.v[24] + h) * a.v[29] + k) * tap_step;
#pragma unroll 4
        for (int i = 0; i < inputs; i++) {
          const float v = po_widen(pixel[(i64)i * a.v[34]]);
          float t[V];
          po_load_part<W_T, V>(t, tap + (i64)i * (per_group * a.v[4]), left, 0.0f);
#pragma unroll
          for (int j = 0; j < V; j++) sum[j] += v * t[j];
        }
      }
    }
  }
  const int channel = group * per_group + c;
  ending(sum, a, n, out[0], out[1], out[2], channel, left ENDING_ARGS);
  Y_T* to = y + ((i64)n * a.v[38] + (i64)channel * a.v[39] + (i64)out[0] * a.v[40] + (i64)out[1] * a.v[41] + (i64)out[2] * a.v[42]);
  if (a.v[39] == 1) {
    po_store_part<Y_T, V>(to, sum, left);
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (j < left) to[(i64)j * a.v[39]] = Narrow<Y_T>::make(sum[j]);
  }
}
