// The largest or smallest elements of lines, in order, with their places: a block sorts a line in shared memory.
//
// Set from outside:
//   T         storage of the elements
//   LARGEST   1: the largest first
//   SIZE      the length of a line, rounded up to a power of two
//   N_OUT     axes of the lines
//
// Integers: 0 the length, 1 how many are taken, 2 strides along the line of input, values and places; from 5 on
// divisors of the lines' axes, innermost first, then strides of input, values and places. Keys sort as elements
// do, NaN above everything; the place breaks ties, so that the order is total.
#define X_AT (5 + 3 * N_OUT)
#define V_AT (X_AT + N_OUT)
#define P_AT (V_AT + N_OUT)

PL_INLINE u32 key_of(float v) {
  const u32 bits = v != v ? 0x7fffffffu : (u32)__float_as_int(v == 0.0f ? 0.0f : v);
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
PL_INLINE u32 key_of(i32 v) { return (u32)v ^ 0x80000000u; }

extern "C" __global__ void __launch_bounds__(256) topk(const T* x, T* values, i64* places, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  __shared__ u64 entries[SIZE];
  u32 rest = blockIdx.x;
  i64 from = 0, value_at = 0, place_at = 0;
#pragma unroll
  for (int i = 0; i < N_OUT; i++) {
    const int at = po_take(rest, a.v[5 + 3 * i], a.v[6 + 3 * i], a.v[7 + 3 * i]);
    from += (i64)at * a.v[X_AT + i];
    value_at += (i64)at * a.v[V_AT + i];
    place_at += (i64)at * a.v[P_AT + i];
  }
  for (int i = threadIdx.x; i < SIZE; i += 256) {
    u64 entry = ~0ull;
    if (i < a.v[0]) {
      const u32 key = key_of(po_widen(x[from + (i64)i * a.v[2]]));
      entry = ((u64)(LARGEST ? ~key : key) << 32) | (u32)i;
    }
    entries[i] = entry;
  }
  for (int size = 2; size <= SIZE; size <<= 1) {
    for (int step = size >> 1; step > 0; step >>= 1) {
      __syncthreads();
      for (int i = threadIdx.x; i < SIZE / 2; i += 256) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const bool up = (low & size) == 0;
        const u64 p = entries[low], q = entries[high];
        if ((p > q) == up) { entries[low] = q; entries[high] = p; }
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.v[1]; i += 256) {
    const int at = (int)(u32)entries[i];
    values[value_at + (i64)i * a.v[3]] = x[from + (i64)at * a.v[2]];
    places[place_at + (i64)i * a.v[4]] = (i64)at;
  }
}
