// Running sums along one axis: a thread has a line.
//
// Set from outside: T the storage; REVERSE, EXCLUSIVE; N_OUT axes of the lines.
// Integers: 0 lines, 1 their length, 2 and 3 strides along them; from 4 on divisors of the lines' axes, innermost
// first, then their strides in input and output.
#define FROM (4 + 3 * N_OUT)
#define TO (FROM + N_OUT)
extern "C" __global__ void __launch_bounds__(256) scan(const T* x, T* y, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.v[0]) return;
  i64 from = 0, to = 0;
#pragma unroll
  for (int i = 0; i < N_OUT; i++) {
    const int at = po_take(rest, a.v[4 + 3 * i], a.v[5 + 3 * i], a.v[6 + 3 * i]);
    from += (i64)at * a.v[FROM + i];
    to += (i64)at * a.v[TO + i];
  }
  typedef typename Wide<T>::type Value;
  Value sum = (Value)0;
  for (int i = 0; i < a.v[1]; i++) {
    const int at = REVERSE ? a.v[1] - 1 - i : i;
    const Value v = po_widen(x[from + (i64)at * a.v[2]]);
    const Value next = pl_add(sum, v);
    y[to + (i64)at * a.v[3]] = Narrow<T>::make(EXCLUSIVE ? sum : next);
    sum = next;
  }
}
