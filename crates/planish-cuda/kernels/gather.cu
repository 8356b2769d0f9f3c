// Elements at places that an index tensor names, along one axis: Gather and GatherElements.
//
// Set from outside:
//   T        any type of the elements' width
//   I_T      i32 or i64
//   V        neighbours at once; 1 where each has an index of its own
//   N_AXES   axes of the output
//
// Negative indices count from the end; what is outside is told and brought inside.
extern "C" __global__ void __launch_bounds__(256) gather(const T* data, const I_T* index, T* y, u64* fault, const GatherArgs a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.n_vectors) return;
  i64 from = 0, to = 0, which = 0;
  int left = V;
#pragma unroll
  for (int i = 0; i < N_AXES; i++) {
    int at = po_take(rest, a.axes[i]);
    if (i == 0) { at *= V; left = a.inner - at; }
    from += (i64)at * a.data_strides[i];
    which += (i64)at * a.index_strides[i];
    to += (i64)at * a.y_strides[i];
  }
  const i64 place = po_inside((i64)index[which], a.axis_size, fault);
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, data + from + place * a.axis_stride, left, (typename Wide<T>::type)0);
  po_store_part<T, V>(y + to, v, left);
}
