// What the forms of attention share: where operands are, what happens to a score, how rows come to shared memory.
//
// Set from outside: TENSOR, 1 for the forms on tensor cores, whose blocks have THREADS; HAS_BYTES, 1 where results are, after
// rounding to T, quantized to numbers of 8 bits (Q_T) with the zero point ZERO.

#define LOG2_E 1.4426950408889634f
// The score of what does not count.
#define HIDDEN __int_as_float(0xff800000)

// What is taken away from scores before they become weights: the greatest, or nothing as long as everything is hidden.
PL_INLINE float base_of(float top) { return top == HIDDEN ? 0.0f : top; }

// Where a head of a batch begins in an operand.
PL_INLINE i64 head_at(const HeadStrides& of, int batch, int head) {
  return (i64)batch * of.batch + (i64)head * of.head;
}

struct Scorer {
  const MASK_T* mask;
  float scale, cap;
  int n_keys, n_queries, past;
  int mask_step, mask_row, mask_keys;

  PL_INLINE void start(const AttentionArgs& a, const MASK_T* m, int batch, int head) {
    mask = m + ((i64)batch * a.mask.batch + (i64)head * a.mask.head);
    mask_row = a.mask.query;
    mask_step = a.mask.key;
    mask_keys = a.mask_keys;
    scale = a.scale;
    cap = a.cap;
    n_queries = a.n_queries;
    n_keys = a.n_keys;
    past = a.n_past;
  }

  // What is added to the score of a key, times log2 e, where it is the same for all queries.
  PL_INLINE float added(int key) const {
    if (key >= n_keys) return HIDDEN;
#if HAS_MASK
    if (key >= mask_keys) return HIDDEN;
    const MASK_T m = mask[(i64)key * mask_step];
#if MASK_BOOL
    return m.byte != 0 ? 0.0f : HIDDEN;
#else
    return po_widen(m) * LOG2_E;
#endif
#else
    return 0.0f;
#endif
  }

  // The score of a query and a key from their product: times log2 e, so that weights are powers of two.
  PL_INLINE float of(float product, int query, int key) const {
    if (key >= n_keys) return HIDDEN;
    float s = product * scale;
#if HAS_CAP
    s = cap * tanhf(s / cap);
#endif
#if HAS_MASK
    const int row = query < n_queries ? query : n_queries - 1;
    if (key >= mask_keys) {
      s = HIDDEN;
    } else {
      const MASK_T m = mask[(i64)row * mask_row + (i64)key * mask_step];
#if MASK_BOOL
      s = m.byte != 0 ? s : HIDDEN;
#else
      s += po_widen(m);
#endif
    }
#endif
#if CAUSAL
    if (key > past + query) s = HIDDEN;
#endif
    return s * LOG2_E;
  }
};

// A result as it is stored.
#if HAS_BYTES
typedef Q_T Y_T;
PL_INLINE Y_T stored(float v, const AttentionArgs& a) {
  return Bytes<Q_T, ZERO>::of(pl_div_by(po_widen(Narrow<T>::make(v)), a.bytes[0], a.bytes[1]));
}
#else
typedef T Y_T;
PL_INLINE Y_T stored(float v, const AttentionArgs&) { return Narrow<T>::make(v); }
#endif
// Eight neighbours of them, of which `left` exist.
PL_INLINE void store_eight(Y_T* to, const float (&v)[8], int left, const AttentionArgs& a) {
#if HAS_BYTES
  Y_T made[8];
#pragma unroll
  for (int j = 0; j < 8; j++) made[j] = stored(v[j], a);
  po_store_part<Y_T, 8>(to, made, left);
#else
  po_store_part<T, 8>(to, v, left);
#endif
}

// Takes the operands to a head of a batch; a head of queries may share its keys and values with others.
template <class S>
PL_INLINE Scorer at_head(const AttentionArgs& a, int batch, int head, const S*& q, const S*& k, const S*& v, Y_T*& y,
                         const MASK_T* mask) {
  const int shared = head / a.sharers;
  q += head_at(a.queries, batch, head);
  k += head_at(a.keys, batch, shared);
  v += head_at(a.values, batch, shared);
  y += head_at(a.out, batch, head);
  Scorer scorer;
  scorer.start(a, mask, batch, head);
  return scorer;
}

#if TENSOR
// A warp's 16 queries while it goes over the keys: of a lane's two rows the greatest score, this lane's part of the
// total, and the sums of N_VALUES features. Groups of 16 features are loaded two at a time, or one where they are not
// even in number.
template <int N_VALUES> struct Running {
  static constexpr int GROUPS_OF_16 = N_VALUES / 16, AT_ONCE = GROUPS_OF_16 % 2 == 0 ? 2 : 1;
  float sums[N_VALUES / 8][4];
  float most[2], total[2];

  PL_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < N_VALUES / 8; i++) { sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.0f; }
#pragma unroll
    for (int h = 0; h < 2; h++) { most[h] = HIDDEN; total[h] = 0.0f; }
  }

  // Scores times a factor above zero become weights, and what was summed is scaled to their greatest. `power` is of two.
  template <int N, class F> PL_INLINE void weigh(float (&s)[N][4], F power, float factor = 1.0f) {
    float top[2] = {most[0], most[1]};
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) top[e / 2] = fmaxf(top[e / 2], s[i][e]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
      const float base = base_of(top[h]);
      const float kept = power((most[h] - base) * factor), offset = -base * factor;
      most[h] = top[h];
      total[h] *= kept;
#pragma unroll
      for (int i = 0; i < N_VALUES / 8; i++) { sums[i][2 * h] *= kept; sums[i][2 * h + 1] *= kept; }
#pragma unroll
      for (int i = 0; i < N; i++) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++) {
          s[i][e] = power(fmaf(s[i][e], factor, offset));
          total[h] += s[i][e];
        }
      }
    }
  }

  // Adds the values of 8 N keys, which lie in rows of PITCH_N, by their weights.
  template <int PITCH_N, int N> PL_INLINE void add(const float (&s)[N][4], const T* values, int lane) {
    // Fragments are loaded one step ahead of the products that take them.
    u32 f[2][AT_ONCE][4];
    const T* value_at = values + lane % 16 * PITCH_N + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < AT_ONCE; n++) load_matrix4_transposed(f[0][n], shared_address(value_at + n * 16));
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      const u32 weights[4] = {
          Pair<T>::pack(s[2 * i][0], s[2 * i][1]), Pair<T>::pack(s[2 * i][2], s[2 * i][3]),
          Pair<T>::pack(s[2 * i + 1][0], s[2 * i + 1][1]), Pair<T>::pack(s[2 * i + 1][2], s[2 * i + 1][3])};
#pragma unroll
      for (int g = 0; g < GROUPS_OF_16; g += AT_ONCE) {
        const int now = (i * GROUPS_OF_16 + g) / AT_ONCE, then = now + 1;
        if (then < N / 2 * GROUPS_OF_16 / AT_ONCE) {
          const int i2 = then * AT_ONCE / GROUPS_OF_16, g2 = then * AT_ONCE % GROUPS_OF_16;
#pragma unroll
          for (int n = 0; n < AT_ONCE; n++)
            load_matrix4_transposed(f[then % 2][n], shared_address(value_at + i2 * 16 * PITCH_N + (g2 + n) * 16));
        }
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
          multiply<T>(sums[2 * (g + n)], weights, f[now % 2][n][0], f[now % 2][n][1]);
          multiply<T>(sums[2 * (g + n) + 1], weights, f[now % 2][n][2], f[now % 2][n][3]);
        }
      }
    }
  }

  // Adds up the lanes' totals.
  PL_INLINE void close() {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
    }
  }
};

// `rows` rows of `n` features into rows of `pitch`, zeros up to `width` and after the last row, by as many threads as there are members.
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
