// Running sums along one axis: a thread has a line.
//
// Set from outside: T the storage; REVERSE, EXCLUSIVE; N_OUT axes of the lines.
extern "C" __global__ void __launch_bounds__(256) scan(const T* x, T* y, const LineArgs a) {
  let_next_begin();
  wait_for_inputs();
  const u32 line = blockIdx.x * 256u + threadIdx.x;
  if (line >= (u32)a.n_lines) return;
  i64 from, to;
  po_line<N_OUT>(a, line, from, to);
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
