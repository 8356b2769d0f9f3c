// What the forms of attention share: where operands are, what happens to a score, how rows come to shared memory.
//
// Integers: 0 heads, 1 query heads that share one of keys and values, 2 queries, 3 keys; strides of batch, head
// and step: 4 queries, 7 keys, 10 values, 13 output; 16 the mask's of batch, head, query and key, 20 its keys;
// 21 the bits of the scale, 22 of the cap; 23 the mask is there; 24 features of queries and keys, 25 of values;
// 26 keys before the first query's own; 27 parts that keys are split into, 28 keys of a part.
//
// Set from outside: TENSOR, 1 for the forms on tensor cores, whose blocks have THREADS.

#define LOG2_E 1.4426950408889634f

struct Scorer {
  const MASK_T* mask;
  float scale, cap;
  int n_keys, n_queries, past;
  int mask_step, mask_row, mask_keys;

  PL_INLINE void start(const Ints& a, const MASK_T* m, int batch, int head) {
    mask = m + ((i64)batch * a.v[16] + (i64)head * a.v[17]);
    mask_row = a.v[18];
    mask_step = a.v[19];
    mask_keys = a.v[20];
    scale = __int_as_float(a.v[21]);
    cap = __int_as_float(a.v[22]);
    n_queries = a.v[2];
    n_keys = a.v[3];
    past = a.v[26];
  }

  // The score of a query and a key from their product: times log2 e, so that weights are powers of two.
  PL_INLINE float of(float product, int query, int key) const {
    const float hidden = __int_as_float(0xff800000);
    if (key >= n_keys) return hidden;
    float s = product * scale;
#if HAS_CAP
    s = cap * tanhf(s / cap);
#endif
#if HAS_MASK
    const int row = query < n_queries ? query : n_queries - 1;
    if (key >= mask_keys) {
      s = hidden;
    } else {
      const MASK_T m = mask[(i64)row * mask_row + (i64)key * mask_step];
#if MASK_BOOL
      s = m != 0 ? s : hidden;
#else
      s += po_widen(m);
#endif
    }
#endif
#if CAUSAL
    if (key > past + query) s = hidden;
#endif
    return s * LOG2_E;
  }
};

#if TENSOR
// `rows` rows of `n` features into rows of `pitch`, zeros up to `width` and behind the last row, by as many threads as there are members.
template <int WIDTH, int ROWS_N, int PITCH_N, int N_MEMBERS = THREADS>
PL_INLINE void bring(T* to, const T* from, i64 step, int rows, int n, int member = threadIdx.x) {
  // An operand that lies inside another may begin anywhere.
  if (WIDE && ((u64)from & 15) == 0) {
    for (int i = member; i < ROWS_N * (WIDTH / 8); i += N_MEMBERS) {
      const int row = i / (WIDTH / 8), chunk = i % (WIDTH / 8);
      const bool there = row < rows && chunk * 8 < n;
      copy_async16(shared_address(to + row * PITCH_N + chunk * 8), there ? from + row * step + chunk * 8 : from, there);
    }
  } else {
    const T zero = {0};
    for (int i = member; i < ROWS_N * WIDTH; i += N_MEMBERS) {
      const int row = i / WIDTH, col = i % WIDTH;
      to[row * PITCH_N + col] = row < rows && col < n ? from[row * step + col] : zero;
    }
  }
  copy_async_commit();
}
#endif
