// Slices at places that tuples of an index tensor name: GatherND.
//
// Set from outside: T any type of the elements' width; I_T i32 or i64; V neighbours at once; N the length of a tuple;
// INDEX(i) the index tensor's element.
// What is outside is told and brought inside.
extern "C" __global__ void __launch_bounds__(256) gather_nd(const T* data, const I_T* index, T* y, u64* fault, const GatherNdArgs a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.n_vectors) return;
  const i64 to = (i64)rest * V;
  i64 from = (i64)po_take(rest, a.slice) * V;
  const i64 tuple = rest;
#pragma unroll
  for (int k = 0; k < N; k++) {
    from += po_inside(INDEX(tuple * N + k), a.sizes[k], fault) * a.strides[k];
  }
  po_take(rest, a.batch_tuples);
  from += (i64)rest * a.batch_elements;
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, data + from, V, (typename Wide<T>::type)0);
  po_store_part<T, V>(y + to, v, V);
}
