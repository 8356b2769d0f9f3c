// Attention on tensor cores for sequences that fill the device: a block has WARPS tiles of 16 queries and goes over the keys
// KEYS at a time. Operands come through registers, one step ahead of their use, and floats of 8 bits become numbers of T on
// the way to shared memory, once for all warps; results leave through shared memory in chunks of 16 bytes.
//
// Set from outside (attention.cuh stands in front):
//   T          f16 or bf16: what is multiplied, and what results are rounded to
//   OPERAND_T  storage of queries, keys and values: T, or e4m3 (from sm_89 on), whose scales are in `scale` and `value_scale`
//   D DV       features of queries and keys, and of values, rounded up to 16
//   WARPS      of a block
//   KEYS       of a step: 32, 64 or 128
//   WIDE       1: operands' rows lie in whole chunks of 16 bytes; 0: anywhere
//   BY_KEY     1: all that is added to a score depends on its key alone

#define ROWS (16 * WARPS)
#define PITCH (D + 8)
#define PITCH_V (DV + 8)
// Of queries, where results of up to DV features are put together later.
#define PITCH_Q ((D > DV ? D : DV) + 8)
#define STAGE (KEYS * (PITCH + PITCH_V))
// A product times a number above zero is a score.
#define FOLDS (BY_KEY && !HAS_MASK)

// Sixteen bytes of an operand as numbers of T in shared memory.
template <class S> struct Chunk {
  static constexpr int N = 8;
  static PL_INLINE void put(T* to, uint4 v) { store_shared16(shared_address(to), v.x, v.y, v.z, v.w); }
};
#if F8
template <> struct Chunk<e4m3> {
  static constexpr int N = 16;
  static PL_INLINE void put(T* to, uint4 v) {
    const u32 at = shared_address(to);
    store_shared16(at, e4m3_halves<T>(v.x & 0xffffu), e4m3_halves<T>(v.x >> 16), e4m3_halves<T>(v.y & 0xffffu),
                   e4m3_halves<T>(v.y >> 16));
    store_shared16(at + 16, e4m3_halves<T>(v.z & 0xffffu), e4m3_halves<T>(v.z >> 16), e4m3_halves<T>(v.w & 0xffffu),
                   e4m3_halves<T>(v.w >> 16));
  }
};
#endif

// This thread's part of N_ROWS rows of WIDTH features that the block brings to shared memory.
template <int WIDTH, int N_ROWS> struct Part {
  static constexpr int N = Chunk<OPERAND_T>::N, ALONG = WIDTH / N, ALL = N_ROWS * ALONG, EACH = (ALL + THREADS - 1) / THREADS;
  uint4 v[EACH];

  // From rows that lie `step` apart, of which `rows` with `n` features are there; the others are zeros.
  PL_INLINE void load(const OPERAND_T* from, i64 step, int rows, int n) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int i = threadIdx.x + j * THREADS, row = i / ALONG, col = i % ALONG * N;
      v[j] = make_uint4(0u, 0u, 0u, 0u);
      if ((ALL % THREADS != 0 && i >= ALL) || row >= rows) continue;
      const OPERAND_T* at = from + row * step + col;
      // An operand that lies inside another may begin anywhere.
      if (WIDE && ((u64)from & 15) == 0) {
        if (col < n) v[j] = *(const uint4*)at;
      } else {
        union { OPERAND_T each[N]; uint4 all; } u;
        u.all = v[j];
        for (int e = 0; e < N; e++)
          if (col + e < n) u.each[e] = at[e];
        v[j] = u.all;
      }
    }
  }

  template <int PITCH_N> PL_INLINE void put(T* to) const {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int i = threadIdx.x + j * THREADS;
      if (ALL % THREADS != 0 && i >= ALL) continue;
      Chunk<OPERAND_T>::put(to + i / ALONG * PITCH_N + i % ALONG * N, v[j]);
    }
  }
};

// What a step of keys needs beside itself: the values, and what is added to scores.
struct Step {
  Part<D, KEYS> keys;
  Part<DV, KEYS> values;
#if BY_KEY && HAS_MASK
  float added[(KEYS + THREADS - 1) / THREADS];
#endif

  PL_INLINE void load(const OPERAND_T* k, const OPERAND_T* v, int start, const AttentionArgs& a, const Scorer& scorer) {
    keys.load(k + (i64)start * a.keys.step, a.keys.step, a.n_keys - start, a.size);
    values.load(v + (i64)start * a.values.step, a.values.step, a.n_keys - start, a.value_size);
#if BY_KEY && HAS_MASK
#pragma unroll
    for (int j = 0; j < (KEYS + THREADS - 1) / THREADS; j++) added[j] = scorer.added(start + threadIdx.x + j * THREADS);
#endif
  }

  PL_INLINE void put(T* stage, float* beside) const {
    keys.template put<PITCH>(stage);
    values.template put<PITCH_V>(stage + KEYS * PITCH);
#if BY_KEY && HAS_MASK
#pragma unroll
    for (int j = 0; j < (KEYS + THREADS - 1) / THREADS; j++) {
      const int key = threadIdx.x + j * THREADS;
      if (key < KEYS) beside[key] = added[j];
    }
#endif
  }
};

// Sixteen warps share a multiprocessor where their scores and sums leave room for that.
#define BLOCKS (KEYS <= 64 && D <= 64 && DV <= 64 ? 16 / WARPS : 1)

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attention(const OPERAND_T* q, const OPERAND_T* k, const OPERAND_T* v, const MASK_T* mask, Y_T* y, const AttentionArgs a) {
  PO_DYNAMIC
  T* queries_at = (T*)po_dynamic;
  T* stages = queries_at + ROWS * PITCH_Q;
  float* beside = (float*)(stages + 2 * STAGE);
  const int head = blockIdx.y, batch = blockIdx.z;
  const int n_queries = a.n_queries, n_keys = a.n_keys;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int first = blockIdx.x * ROWS;
  const Scorer scorer = at_head(a, batch, head, q, k, v, y, mask);
  const int row = first + warp * 16 + lane / 4;  // and row + 8
#if CAUSAL
  const int last = min(n_keys, a.n_past + first + ROWS);
#else
  const int last = n_keys;
#endif
  let_next_begin();
  wait_for_inputs();
  {
    Part<D, ROWS> own;
    Step step;
    own.load(q + (i64)first * a.queries.step, a.queries.step, n_queries - first, a.size);
    step.load(k, v, 0, a, scorer);
    own.template put<PITCH_Q>(queries_at);
    step.put(stages, beside);
  }
  __syncthreads();
  u32 queries[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++)
    load_matrix4(queries[i], shared_address(queries_at + (warp * 16 + lane % 16) * PITCH_Q + i * 16 + lane / 16 * 8));

  Running<DV> running;
  running.clear();
  int stage = 0;
#pragma unroll 1
  for (int start = 0; start < last; start += KEYS) {
    const int next = start + KEYS;
    Step step;
    if (next < last) step.load(k, v, next, a, scorer);
    const T* keys = stages + stage * STAGE;
    float s[KEYS / 8][4];
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) { s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f; }
    const T* key_at = keys + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
    // Fragments are loaded one step ahead of the products that take them.
    u32 b[2][4];
    load_matrix4(b[0], shared_address(key_at));
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        const int now = n * (D / 16) + i, then = now + 1;
        if (then < KEYS / 16 * (D / 16))
          load_matrix4(b[then % 2], shared_address(key_at + then / (D / 16) * 16 * PITCH + then % (D / 16) * 16));
        multiply<T>(s[2 * n], queries[i], b[now % 2][0], b[now % 2][1]);
        multiply<T>(s[2 * n + 1], queries[i], b[now % 2][2], b[now % 2][3]);
      }
    }
    float factor = 1.0f;
#if FOLDS
    factor = scorer.scale * LOG2_E;
    if (next > n_keys) {
      const int left = n_keys - start - lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (i * 8 + e % 2 >= left) s[i][e] = HIDDEN;
      }
    }
#elif BY_KEY
    const float scale = scorer.scale * LOG2_E;
    const float* added = beside + stage * KEYS + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
      const float2 two = *(const float2*)(added + i * 8);
#pragma unroll
      for (int e = 0; e < 4; e++) s[i][e] = fmaf(s[i][e], scale, e % 2 == 0 ? two.x : two.y);
    }
#else
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[i][e] = scorer.of(s[i][e], row + e / 2 * 8, start + i * 8 + lane % 4 * 2 + e % 2);
    }
#endif
    running.weigh(s, [](float v) { return fast_exp2(v); }, factor);
    running.template add<PITCH_V>(s, keys + KEYS * PITCH, lane);
    stage ^= 1;
    // No warp reads the other stage any more: the barrier of the step before stands between.
    if (next < last) step.put(stages + stage * STAGE, beside + stage * KEYS);
    __syncthreads();
  }
  running.close();

  // Into the rows of this warp's queries, which are in its registers, and from there in whole chunks.
  Y_T* results = (Y_T*)(queries_at + warp * 16 * PITCH_Q);
  const int pitch = PITCH_Q * (int)(sizeof(T) / sizeof(Y_T));
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float by = a.value_scale / running.total[h];
    Y_T* to = results + (lane / 4 + 8 * h) * pitch + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < DV / 8; i++) {
      to[i * 8] = stored(running.sums[i][2 * h] * by, a);
      to[i * 8 + 1] = stored(running.sums[i][2 * h + 1] * by, a);
    }
  }
  __syncwarp();
  const int n = 16 / sizeof(Y_T), along = DV / n;
  if (WIDE && ((u64)y & 15) == 0) {
    for (int i = lane; i < 16 * along; i += 32) {
      const int own = i / along, col = i % along * n, at = first + warp * 16 + own;
      if (at < n_queries && col < a.value_size)
        *(uint4*)(y + (i64)at * a.out.step + col) = *(const uint4*)(results + own * pitch + col);
    }
  } else {
    for (int i = lane; i < 16 * DV; i += 32) {
      const int own = i / DV, col = i % DV, at = first + warp * 16 + own;
      if (at < n_queries && col < a.value_size) y[(i64)at * a.out.step + col] = results[own * pitch + col];
    }
  }
}
