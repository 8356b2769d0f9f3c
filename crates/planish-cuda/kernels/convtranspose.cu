// Transposed convolution on the plain units, in any layout: a thread has V output channels of one pixel and goes
// over the taps that reach it and the input channels of its group.
//
// Set from outside:
//   X_T W_T Y_T    storage
//   V              output channels of a thread
//   EPILOGUE…      the program after (see epilogue.rs)
//
// Weights are packed as tap, input channel, output channel of the group.
extern "C" __global__ void __launch_bounds__(256)
convtranspose(const X_T* x, const W_T* w, Y_T* y, const ConvTransposeArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  int at[5], n;
  if (!po_thread<256>(a.threads, at, n)) return;
  const int c = at[0] * V, group = at[1];
  const int out[3] = {at[4], at[3], at[2]};
  const int per_group = a.per_group, inputs = a.inputs, left = per_group - c;
  float sum[V];
#pragma unroll
  for (int j = 0; j < V; j++) sum[j] = 0.0f;
  const X_T* from = x + ((i64)n * a.x.n + (i64)group * inputs * a.x.c);
  const i64 tap_step = (i64)inputs * (per_group * a.groups);
  const W_T* taps = w + (i64)group * per_group + c;
  for (int d = 0; d < a.windows[0].kernel; d++) {
    const int zd = out[0] + a.windows[0].pad_begin - d * a.windows[0].dilation;
    if (zd < 0 || zd % a.windows[0].stride != 0 || zd / a.windows[0].stride >= a.windows[0].output) continue;
    for (int h = 0; h < a.windows[1].kernel; h++) {
      const int zh = out[1] + a.windows[1].pad_begin - h * a.windows[1].dilation;
      if (zh < 0 || zh % a.windows[1].stride != 0 || zh / a.windows[1].stride >= a.windows[1].output) continue;
      for (int k = 0; k < a.windows[2].kernel; k++) {
        const int zw = out[2] + a.windows[2].pad_begin - k * a.windows[2].dilation;
        if (zw < 0 || zw % a.windows[2].stride != 0 || zw / a.windows[2].stride >= a.windows[2].output) continue;
        const X_T* pixel = from + ((i64)(zd / a.windows[0].stride) * a.x.d + (i64)(zh / a.windows[1].stride) * a.x.h + (i64)(zw / a.windows[2].stride) * a.x.w);
        const W_T* tap = taps + ((d * a.windows[1].kernel + h) * a.windows[2].kernel + k) * tap_step;
#pragma unroll 4
        for (int i = 0; i < inputs; i++) {
          const float v = po_widen(pixel[(i64)i * a.x.c]);
          float t[V];
          po_load_part<W_T, V>(t, tap + (i64)i * (per_group * a.groups), left, 0.0f);
#pragma unroll
          for (int j = 0; j < V; j++) sum[j] += v * t[j];
        }
      }
    }
  }
  const int channel = group * per_group + c;
  epilogue(sum, a.epilogue, n, out[0], out[1], out[2], channel, left EPILOGUE_ARGS);
  Y_T* to = y + ((i64)n * a.y.n + (i64)channel * a.y.c + (i64)out[0] * a.y.d + (i64)out[1] * a.y.h + (i64)out[2] * a.y.w);
  const Stored<Y_T, V> made(sum);
  if (a.y.c == 1) {
    po_store_part<Y_T, V>(to, made.v, left);
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (j < left) to[(i64)j * a.y.c] = Narrow<Y_T>::make(made.v[j]);
  }
}
