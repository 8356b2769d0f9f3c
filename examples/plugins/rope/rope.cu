// planish-plugin 1
// op: example.rope::Rope
// version: 1
// about: rotary position embedding, halves of each vector turned against each other
// types: T = float32 | float16
// inputs: x: T[b, h, s, d], cos: T[b, s, d / 2], sin: T[b, s, d / 2]
// outputs: y: T[b, h, s, d]
// where: d % 2 == 0
// epilogue: yes
// tolerance: float32 1e-6, float16 1e-3
// sizes: b=2 h=3 s=5 d=64; b=1 h=8 s=17 d=128
// reference: y = RotaryEmbedding(x, cos, sin)
// kernel: rope
// threads: 256
// grid: ceildiv(b * h * s * ceildiv(d / 2, V), 256)
// tactics: single(V=1); wide(V=4); wider(V=8)

// Rotary position embedding for NVIDIA GPUs: a thread turns V pairs of a vector. rope.c is the same operator for CPUs.
//
// Planish sets T, V and the names of the declaration in `a`, and compiles the text with its prelude: po_load_part and
// po_store_part move V elements at once where addresses allow it, pl_finish goes on with what follows.
extern "C" __global__ void __launch_bounds__(256)
rope(const T* x, const T* cos, const T* sin, T* y, void* workspace, const PluginArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  // Numbers of 32 bits divide faster; the grid has no more threads.
  const u32 pairs = (u32)a.d / 2, groups = (pairs + V - 1) / V;
  const u32 thread = blockIdx.x * 256u + threadIdx.x;
  const u32 row = thread / groups, at = (thread - row * groups) * V;
  if (row >= (u32)(a.b * a.h * a.s)) return;
  const u32 step = row % (u32)a.s, batch = row / (u32)(a.s * a.h);
  const i64 angles = ((i64)batch * a.s + step) * pairs + at, first = (i64)row * a.d + at;
  const int left = (int)(pairs - at);
  float c[V], s[V], even[V], odd[V];
  po_load_part<T, V>(c, cos + angles, left, 0.0f);
  po_load_part<T, V>(s, sin + angles, left, 0.0f);
  po_load_part<T, V>(even, x + first, left, 0.0f);
  po_load_part<T, V>(odd, x + first + pairs, left, 0.0f);
#pragma unroll
  for (int i = 0; i < V; i++) {
    const float turned = c[i] * even[i] - s[i] * odd[i];
    odd[i] = s[i] * even[i] + c[i] * odd[i];
    even[i] = turned;
  }
  pl_finish(even, first, left, a EPILOGUE_ARGS);
  pl_finish(odd, first + pairs, left, a EPILOGUE_ARGS);
  po_store_part<T, V>(y + first, even, left);
  po_store_part<T, V>(y + first + pairs, odd, left);
}
