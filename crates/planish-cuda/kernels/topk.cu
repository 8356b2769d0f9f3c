// The largest or smallest elements of lines, in order, with their places: a block sorts a line in shared memory.
//
// Set from outside:
//   T         storage of the elements
//   LARGEST   1: the largest first
//   SIZE      the length of a line, rounded up to a power of two
//   N_OUT     axes of the lines
//
// Keys sort as elements do, NaN above everything; the place breaks ties, so that the order is total.

PL_INLINE u32 key_of(float v) {
  const u32 bits = v != v ? 0x7fffffffu : (u32)__float_as_int(v == 0.0f ? 0.0f : v);
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
PL_INLINE u32 key_of(i32 v) { return (u32)v ^ 0x80000000u; }

extern "C" __global__ void __launch_bounds__(256) topk(const T* x, T* values, i64* places, const TopKArgs a) {
  let_next_begin();
  wait_for_inputs();
  __shared__ u64 entries[SIZE];
  u32 rest = blockIdx.x;
  i64 from = 0, value_at = 0, place_at = 0;
#pragma unroll
  for (int i = 0; i < N_OUT; i++) {
    const int at = po_take(rest, a.axes[i]);
    from += (i64)at * a.x_strides[i];
    value_at += (i64)at * a.value_strides[i];
    place_at += (i64)at * a.place_strides[i];
  }
  for (int i = threadIdx.x; i < SIZE; i += 256) {
    u64 entry = ~0ull;
    if (i < a.len) {
      const u32 key = key_of(po_widen(x[from + (i64)i * a.x_step]));
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
  for (int i = threadIdx.x; i < a.k; i += 256) {
    const int at = (int)(u32)entries[i];
    values[value_at + (i64)i * a.value_step] = x[from + (i64)at * a.x_step];
    places[place_at + (i64)i * a.place_step] = (i64)at;
  }
}
