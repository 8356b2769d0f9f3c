// Steps of the past and new ones one after another.
//
// Integers: 0 elements of the result, 1 heads, 2 steps, 3 features, 4 steps of the past; strides of batch, head and
// step: 5 the new ones', 8 the past's, 11 the result's.
//
// Set from outside: T, the elements' storage.

extern "C" __global__ void __launch_bounds__(256)
attention_present(const T* fresh, const T* past, T* y, const Ints a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.v[0]) return;
  const int feature = (int)(rest % (u32)a.v[3]);
  rest /= (u32)a.v[3];
  const int step = (int)(rest % (u32)a.v[2]);
  rest /= (u32)a.v[2];
  const int head = (int)(rest % (u32)a.v[1]), batch = (int)(rest / (u32)a.v[1]);
  const T* from = step < a.v[4] ? past + (i64)batch * a.v[8] + (i64)head * a.v[9] + (i64)step * a.v[10]
                                : fresh + (i64)batch * a.v[5] + (i64)head * a.v[6] + (i64)(step - a.v[4]) * a.v[7];
  y[(i64)batch * a.v[11] + (i64)head * a.v[12] + (i64)step * a.v[13] + feature] = from[feature];
}
