// Resize of images: nearest pixels, or weighted sums of neighbours along each axis.
//
// Set from outside:
//   T        storage; for nearest pixels any type of the same width
//   V        neighbouring channels of a thread; 1 unless channels are innermost
//   LAST     1: channels are innermost and threads follow them; 0: columns are
//   TAPS     along each axis: 1 nearest, 2 linear, 4 cubic
//   EXCLUDE  1: pixels outside do not count; 0: the border is repeated
//   CUBIC_A  the cubic's coefficient

PL_INLINE float keys(float x) {
  x = fabsf(x);
  if (x <= 1.0f) return ((CUBIC_A + 2.0f) * x - (CUBIC_A + 3.0f)) * x * x + 1.0f;
  if (x < 2.0f) return ((CUBIC_A * x - 5.0f * CUBIC_A) * x + 8.0f * CUBIC_A) * x - 4.0f * CUBIC_A;
  return 0.0f;
}

// The places that a point reads along an axis, and their weights.
PL_INLINE void taps_of(const ResizeAxis& axis, int point, int (&place)[TAPS], float (&weight)[TAPS]) {
  const int last = axis.size - 1, how = axis.rounding;
  if (how == 4) {
#pragma unroll
    for (int i = 0; i < TAPS; i++) { place[i] = point; weight[i] = i == 0 ? 1.0f : 0.0f; }
    return;
  }
  const double at = ((double)point * axis.line[0] + axis.line[1]) / axis.line[2] + axis.line[3];
#if TAPS == 1
  const double p = how == 0 ? floor(at) : how == 1 ? ceil(at) : how == 2 ? ceil(at - 0.5) : floor(at + 0.5);
  place[0] = max(0, min(last, (int)p));
  weight[0] = 1.0f;
#else
  const double low = floor(at);
  const float rest = (float)(at - low);
  const int first = (int)low - (TAPS / 2 - 1);
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < TAPS; i++) {
    const int p = first + i;
    const float distance = (float)(i - (TAPS / 2 - 1)) - rest;
    float w = TAPS == 2 ? 1.0f - fabsf(distance) : keys(distance);
    if (EXCLUDE && (p < 0 || p > last)) w = 0.0f;
    place[i] = max(0, min(last, p));
    weight[i] = w;
    total += w;
  }
#if EXCLUDE
  if (total != 0.0f) {
#pragma unroll
    for (int i = 0; i < TAPS; i++) weight[i] /= total;
  }
#endif
#endif
}

extern "C" __global__ void __launch_bounds__(256) resize(const T* x, T* y, const ResizeArgs a) {
  let_next_begin();
  wait_for_inputs();
  int at[4], n;
  if (!po_thread<256>(a.threads, at, n)) return;
  const int c = LAST ? at[0] * V : at[3], left = a.channels - c;
  const int out[3] = {at[LAST + 2], at[LAST + 1], at[LAST]};
  int place[3][TAPS];
  float weight[3][TAPS];
#pragma unroll
  for (int i = 0; i < 3; i++) taps_of(a.axes[i], out[i], place[i], weight[i]);
  const T* from = x + (n * a.x.n + c * a.x.c);
  T* to = y + (n * a.y.n + c * a.y.c + out[0] * a.y.d + out[1] * a.y.h + out[2] * a.y.w);
#if TAPS == 1
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, from + (place[0][0] * a.x.d + place[1][0] * a.x.h + place[2][0] * a.x.w), left, 0);
  po_store_part<T, V>(to, v, left);
#else
  float sum[V];
#pragma unroll
  for (int j = 0; j < V; j++) sum[j] = 0.0f;
#pragma unroll
  for (int d = 0; d < TAPS; d++) {
    if (weight[0][d] == 0.0f) continue;
#pragma unroll
    for (int h = 0; h < TAPS; h++) {
      if (weight[1][h] == 0.0f) continue;
#pragma unroll
      for (int w = 0; w < TAPS; w++) {
        const float share = weight[0][d] * weight[1][h] * weight[2][w];
        if (share == 0.0f) continue;
        float v[V];
        po_load_part<T, V>(v, from + (place[0][d] * a.x.d + place[1][h] * a.x.h + place[2][w] * a.x.w), left, 0.0f);
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] += share * v[j];
      }
    }
  }
  po_store_part<T, V>(to, sum, left);
#endif
}
