// What both forms of attention share: where operands are, and what happens to a score.
//
// Integers: 0 heads, 1 query heads that share one of keys and values, 2 queries, 3 keys; strides of batch, head
// and step: 4 queries, 7 keys, 10 values, 13 output; 16 the mask's of batch, head, query and key, 20 its keys;
// 21 the bits of the scale, 22 of the cap; 23 the mask is there; 24 features of queries and keys, 25 of values;
// 26 blocks of queries.

#define LOG2_E 1.4426950408889634f

struct Scorer {
  const MASK_T* mask;
  float scale, cap;
  int n_keys, n_queries;
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
    if (key > query) s = hidden;
#endif
    return s * LOG2_E;
  }
};
