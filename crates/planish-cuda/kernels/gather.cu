// Elements at places that an index tensor names, along one axis: Gather and GatherElements.
//
// Set from outside:
//   T        any type of the elements' width
//   I_T      i32 or i64
//   V        neighbours at once; 1 where each has an index of its own
//   N_AXES   axes of the output
//
// Integers: 0 (vectors of) elements, 1 the size of the innermost axis, 2 the size and 3 the stride of the data's
// indexed axis; from 4 on divisors of the output's axes, innermost first (of vectors there), then strides of the
// data, the index and the output. Negative indices count from the end; what is outside is told and brought inside.
#define DATA (4 + 3 * N_AXES)
#define INDEX (DATA + N_AXES)
#define OUT (INDEX + N_AXES)
extern "C" __global__ void __launch_bounds__(256) gather(const T* data, const I_T* index, T* y, u64* fault, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.v[0]) return;
  i64 from = 0, to = 0, which = 0;
  int left = V;
#pragma unroll
  for (int i = 0; i < N_AXES; i++) {
    int at = po_take(rest, a.v[4 + 3 * i], a.v[5 + 3 * i], a.v[6 + 3 * i]);
    if (i == 0) { at *= V; left = a.v[1] - at; }
    from += (i64)at * a.v[DATA + i];
    which += (i64)at * a.v[INDEX + i];
    to += (i64)at * a.v[OUT + i];
  }
  const i64 place = po_inside((i64)index[which], a.v[2], fault);
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, data + from + place * a.v[3], left, (typename Wide<T>::type)0);
  po_store_part<T, V>(y + to, v, left);
}
