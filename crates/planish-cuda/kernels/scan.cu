// Running sums along one axis: a thread has a line.
//
// Set from outside: T the storage; REVERSE, EXCLUSIVE; N_OUT axes of the lines.
extern "C" __global__ void __launch_bounds__(256) scan(const T* x, T* y, const LineArgs a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.n_lines) return;
  i64 from = 0, to = 0;
#pragma unroll
  for (int i = 0; i < N_OUT; i++) {
    const int at = po_take(rest, a.axes[i]);
    from += (i64)at * a.x_strides[i];
    to += (i64)at * a.y_strides[i];
  }
  typedef typename Wide<T>::type Value;
  Value sum = (Value)0;
  for (int i = 0; i < a.len; i++) {
    const int at = REVERSE ? a.len - 1 - i : i;
    const Value v = po_widen(x[from + (i64)at * a.x_step]);
    const Value next = pl_add(sum, v);
    y[to + (i64)at * a.y_step] = Narrow<T>::make(EXCLUSIVE ? sum : next);
    sum = next;
  }
}
