// Steps of the past and new ones one after another.
//
// Set from outside: T, the elements' storage.

extern "C" __global__ void __launch_bounds__(256)
attention_present(const T* fresh, const T* past, T* y, const AttentionPresentArgs a) {
  let_next_begin();
  wait_for_inputs();
  u32 rest = blockIdx.x * 256u + threadIdx.x;
  if (rest >= (u32)a.len) return;
  const int feature = (int)(rest % (u32)a.size);
  rest /= (u32)a.size;
  const int step = (int)(rest % (u32)a.n_steps);
  rest /= (u32)a.n_steps;
  const int head = (int)(rest % (u32)a.n_heads), batch = (int)(rest / (u32)a.n_heads);
  const T* from = step < a.n_past ? past + (i64)batch * a.past.batch + (i64)head * a.past.head + (i64)step * a.past.step
                                : fresh + (i64)batch * a.fresh.batch + (i64)head * a.fresh.head + (i64)(step - a.n_past) * a.fresh.step;
  y[(i64)batch * a.y.batch + (i64)head * a.y.head + (i64)step * a.y.step + feature] = from[feature];
}
