// Rotary embeddings: a thread turns V pairs of a vector, or brings V elements behind the pairs to the output.
//
// Set from outside:
//   T            the storage of the vectors
//   C            that of cosines and sines
//   V            pairs at once
//   INTERLEAVED  whether the two of a pair are neighbours; otherwise the second is `n_pairs` behind the first
//   POSITIONS    whether positions say which row of the tables a step reads
//   I_T          i32 or i64, their type; INDEX(i) the position of step i
//
// Both of a pair are read before either is written: the output may lie over the input. A position that is outside is
// told and brought inside.
extern "C" __global__ void __launch_bounds__(256)
rotary(const T* x, const C* cos, const C* sin, const I_T* index, T* y, u64* fault, const RotaryArgs a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.n_threads) return;
  int at = po_take(rest, a.groups);
  i64 cos_at = 0, sin_at = 0, step = 0;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int place = po_take(rest, a.axes[i]);
    x += (i64)place * a.x_strides[i];
    y += (i64)place * a.y_strides[i];
    cos_at += (i64)place * a.cos_strides[i];
    sin_at += (i64)place * a.sin_strides[i];
    step += (i64)place * a.position_strides[i];
  }
  if (at >= a.n_turned) {
    at = 2 * a.n_pairs + (at - a.n_turned) * V;
    float v[V];
    po_load_part<T, V>(v, x + at, a.size - at, 0.0f);
    po_store_part<T, V>(y + at, v, a.size - at);
    return;
  }
#if POSITIONS
  const i64 row = po_row(INDEX(step), a.n_rows, fault);
  cos_at += row * a.cos_row;
  sin_at += row * a.sin_row;
#endif
  at *= V;
  const int left = a.n_pairs - at;
  float c[V], s[V], first[V], second[V];
  po_load_part<C, V>(c, cos + cos_at + at, left, 0.0f);
  po_load_part<C, V>(s, sin + sin_at + at, left, 0.0f);
#if INTERLEAVED
  float both[2 * V];
  po_load_part<T, 2 * V>(both, x + 2 * at, 2 * left, 0.0f);
#pragma unroll
  for (int i = 0; i < V; i++) { first[i] = both[2 * i]; second[i] = both[2 * i + 1]; }
#else
  po_load_part<T, V>(first, x + at, left, 0.0f);
  po_load_part<T, V>(second, x + a.n_pairs + at, left, 0.0f);
#endif
#pragma unroll
  for (int i = 0; i < V; i++) {
    const float turned = c[i] * first[i] - s[i] * second[i];
    second[i] = s[i] * first[i] + c[i] * second[i];
    first[i] = turned;
  }
#if INTERLEAVED
#pragma unroll
  for (int i = 0; i < V; i++) { both[2 * i] = first[i]; both[2 * i + 1] = second[i]; }
  po_store_part<T, 2 * V>(y + 2 * at, both, 2 * left);
#else
  po_store_part<T, V>(y + at, first, left);
  po_store_part<T, V>(y + a.n_pairs + at, second, left);
#endif
}
