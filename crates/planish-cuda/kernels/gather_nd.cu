// Slices at places that tuples of an index tensor name: GatherND.
//
// Set from outside: T any type of the elements' width; I_T i32 or i64; V neighbours at once; N the length of a tuple;
// INDEX(i) the index tensor's element.
// Integers: 0 vectors, 1 to 3 the divisor of a slice in vectors, 4 to 6 that of the tuples of a batch, 7 the elements of
// a batch; from 8 on the size and the stride of each axis of a tuple. What is outside is told and brought inside.
extern "C" __global__ void __launch_bounds__(256) gather_nd(const T* data, const I_T* index, T* y, u64* fault, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.v[0]) return;
  const i64 to = (i64)rest * V;
  i64 from = (i64)po_take(rest, a.v[1], a.v[2], a.v[3]) * V;
  const i64 tuple = rest;
#pragma unroll
  for (int k = 0; k < N; k++) {
    from += po_inside(INDEX(tuple * N + k), a.v[8 + 2 * k], fault) * a.v[9 + 2 * k];
  }
  po_take(rest, a.v[4], a.v[5], a.v[6]);
  from += (i64)rest * a.v[7];
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, data + from, V, (typename Wide<T>::type)0);
  po_store_part<T, V>(y + to, v, V);
}
