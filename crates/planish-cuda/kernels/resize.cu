// Resize of images: nearest pixels, or weighted sums of neighbours along each axis.
//
// Set from outside:
//   T        storage; for nearest pixels any type of the same width
//   V        neighbouring channels of a thread; 1 unless channels are innermost
//   LAST     1: channels are innermost and threads follow them; 0: columns are
//   TAPS     along each axis: 1 nearest, 2 linear, 4 cubic
//   EXCLUDE  1: pixels outside do not count; 0: the border is repeated
//   CUBIC_A  the cubic's coefficient
//
// Integers: 0 the number of threads; from 1 on the divisors of the threads' axes, innermost first (with LAST
// vectors of channels, columns, rows, depths; else columns, rows, depths, channels); 13 the channels; 14 strides
// of sample, channel, depth, row and column of the input, 19 of the output; from 24 on for depth, row and column
// each: the input's size, how to round (0 down, 1 up, 2 to the nearest, halves down, 3 halves up, 4 the axis is
// left alone), and four doubles: point p is at (p · d0 + d1) / d2 + d3.

PL_INLINE double number(const Ints& a, int at) {
  union { u64 bits; double value; } u;
  u.bits = (u64)(u32)a.v[at] | ((u64)(u32)a.v[at + 1] << 32);
  return u.value;
}

PL_INLINE float keys(float x) {
  x = fabsf(x);
  if (x <= 1.0f) return ((CUBIC_A + 2.0f) * x - (CUBIC_A + 3.0f)) * x * x + 1.0f;
  if (x < 2.0f) return ((CUBIC_A * x - 5.0f * CUBIC_A) * x + 8.0f * CUBIC_A) * x - 4.0f * CUBIC_A;
  return 0.0f;
}

// The places that a point reads along an axis, and their weights.
PL_INLINE void taps_of(const Ints& a, int axis, int point, int (&place)[TAPS], float (&weight)[TAPS]) {
  const int base = 24 + 10 * axis;
  const int last = a.v[base] - 1, how = a.v[base + 1];
  if (how == 4) {
#pragma unroll
    for (int i = 0; i < TAPS; i++) { place[i] = point; weight[i] = i == 0 ? 1.0f : 0.0f; }
    return;
  }
  const double at =
      ((double)point * number(a, base + 2) + number(a, base + 4)) / number(a, base + 6) + number(a, base + 8);
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

extern "C" __global__ void __launch_bounds__(256) resize(const T* x, T* y, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  int at[4], n;
  if (!po_thread<256>(a, at, n)) return;
  const int c = LAST ? at[0] * V : at[3], left = a.v[13] - c;
  const int out[3] = {at[LAST + 2], at[LAST + 1], at[LAST]};
  int place[3][TAPS];
  float weight[3][TAPS];
#pragma unroll
  for (int i = 0; i < 3; i++) taps_of(a, i, out[i], place[i], weight[i]);
  const T* from = x + (n * a.v[14] + c * a.v[15]);
  T* to = y + (n * a.v[19] + c * a.v[20] + out[0] * a.v[21] + out[1] * a.v[22] + out[2] * a.v[23]);
#if TAPS == 1
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, from + (place[0][0] * a.v[16] + place[1][0] * a.v[17] + place[2][0] * a.v[18]), left, 0);
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
        po_load_part<T, V>(v, from + (place[0][d] * a.v[16] + place[1][h] * a.v[17] + place[2][w] * a.v[18]), left, 0.0f);
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] += share * v[j];
      }
    }
  }
  po_store_part<T, V>(to, sum, left);
#endif
}
