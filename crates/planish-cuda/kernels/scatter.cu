// Elements or slices written or folded in at places that an index tensor names: ScatterElements and ScatterND.
//
// Where several meet at one place the last of them stays, as if they came one after the other: `mark` keeps the
// number of the last that names a place (integers, so that the order of arrival does not matter), `pick` takes it or
// what was there. Folds go one after the other too: a thread has all that can meet.
//
// Set from outside:
//   STAGE      0 forget, 1 mark, 2 pick, 3 copy, 4 fold
//   T          the elements' type, any of their width where they are only moved
//   I_T        i32 or i64
//   V          neighbours at once (pick, copy)
//   EACH       each element has an index (ScatterElements), or each slice a tuple (ScatterND)
//   N          axes of the index (EACH, without the indexed one in a fold), or the length of a tuple
//   FOLD       the function
//   INDEX(i)   the index tensor's element
//
// What is outside is told and brought inside. What a stage does not read of its arguments is zero.

#if !EACH && (STAGE == 1 || STAGE == 4)
// The slice that a tuple names.
PL_INLINE i64 slice_of(const I_T* index, i64 tuple, u64* fault, const ScatterArgs& a) {
  i64 slice = 0;
#pragma unroll
  for (int k = 0; k < N; k++) {
    slice += po_inside(INDEX(tuple * N + k), a.tuple_sizes[k], fault) * a.tuple_strides[k];
  }
  return slice;
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    scatter(const T* data, const I_T* index, const T* updates, T* y, u32* last, u64* fault, const ScatterArgs a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.n_threads) return;
#if STAGE == 0
  last[rest] = 0;
#elif STAGE == 1
  const u32 number = rest + 1;
#if EACH
  i64 place = po_inside(INDEX(rest), a.axis_size, fault) * a.axis_stride;
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int at = po_take(rest, a.axes[i]);
    place += (i64)at * a.data_strides[i];
  }
#else
  const i64 place = slice_of(index, rest, fault, a);
#endif
  atomicMax(last + place, number);
#elif STAGE == 2
  const i64 at = (i64)rest * V;
  const int within = po_take(rest, a.slice_vectors) * V;
  const u32 number = last[rest];
  const T* from = number ? updates + (i64)(number - 1) * a.slice + within : data + at;
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, from, V, (typename Wide<T>::type)0);
  po_store_part<T, V>(y + at, v, V);
#elif STAGE == 3
  typename Wide<T>::type v[V];
  po_load_part<T, V>(v, data + (i64)rest * V, V, (typename Wide<T>::type)0);
  po_store_part<T, V>(y + (i64)rest * V, v, V);
#elif EACH
  // A line of the index along its axis.
  i64 line = 0, first = 0;
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int at = po_take(rest, a.axes[i]);
    line += (i64)at * a.data_strides[i];
    first += (i64)at * a.index_strides[i];
  }
  for (int j = 0; j < a.n_folds; j++) {
    const i64 from = first + (i64)j * a.index_step;
    T* to = y + line + po_inside(INDEX(from), a.axis_size, fault) * a.axis_stride;
    *to = Narrow<T>::make(FOLD(po_widen(*to), po_widen(updates[from])));
  }
#else
  // One element of every slice.
  for (int j = 0; j < a.n_folds; j++) {
    T* to = y + slice_of(index, j, fault, a) * a.slice + rest;
    *to = Narrow<T>::make(FOLD(po_widen(*to), po_widen(updates[(i64)j * a.slice + rest])));
  }
#endif
}
