// Running sums along one axis: a warp has a line and takes 32 elements at a time.
//
// Set from outside: T the storage; REVERSE, EXCLUSIVE; N_OUT axes of the lines.
extern "C" __global__ void __launch_bounds__(256) scan_warp(const T* x, T* y, const LineArgs a) {
  let_next_begin();
  wait_for_inputs();
  const int lane = threadIdx.x & 31;
  const u32 line = blockIdx.x * 8u + threadIdx.x / 32;
  if (line >= (u32)a.n_lines) return;
  i64 from, to;
  po_line<N_OUT>(a, line, from, to);
  typedef typename Wide<T>::type Value;
  Value before = (Value)0;  // the sum of all chunks so far
  for (int begin = 0; begin < a.len; begin += 32) {
    const int i = begin + lane;
    const int at = REVERSE ? a.len - 1 - i : i;
    Value sum = i < a.len ? po_widen(x[from + (i64)at * a.x_step]) : (Value)0;
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
      const Value left = __shfl_sync(0xffffffffu, sum, lane < step ? lane : lane - step);
      if (lane >= step) sum = pl_add(left, sum);
    }
    const Value left = __shfl_sync(0xffffffffu, sum, lane ? lane - 1 : 0);
    const Value inside = EXCLUSIVE ? (lane ? left : (Value)0) : sum;
    if (i < a.len) y[to + (i64)at * a.y_step] = Narrow<T>::make(pl_add(before, inside));
    before = pl_add(before, __shfl_sync(0xffffffffu, sum, 31));
  }
}
