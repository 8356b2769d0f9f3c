// Reductions over any axes, and where extremes lie. A block makes some results; threads that share one keep a
// part of it each, and parts are joined in a fixed order.
//
// Set from outside:
//   T U        what elements and results are stored in
//   OP         SUM, MEAN, PROD, MAX, MIN, L1, L2, SQUARES, LOG_SUM, LOG_SUM_EXP, ARG_MAX, ARG_MIN
//   LAST_WINS  of equal extremes the last is taken, not the first
//   SHARERS    threads that share a result, a power of two
//   ALONG      1: threads that share one are neighbours, as its elements are; 0: neighbours make neighbouring
//              results
//   V          ALONG: neighbouring elements read at once; else neighbouring results of a thread
//   N_KEPT N_GONE   axes of the results and of what is reduced
//   PARTS      more than 1: so many blocks share a result, and `reduce_finish` joins what they leave

#define SUM 0
#define MEAN 1
#define PROD 2
#define MAX 3
#define MIN 4
#define L1 5
#define L2 6
#define SQUARES 7
#define LOG_SUM 8
#define LOG_SUM_EXP 9
#define ARG_MAX 10
#define ARG_MIN 11
#define IS_ARG (OP == ARG_MAX || OP == ARG_MIN)
#define IS_LEAST (OP == MIN || OP == ARG_MIN)

typedef typename Wide<T>::type Value;

#if OP == MAX || OP == MIN || IS_ARG
// Whether `v` takes the place of `most`; NaN wins over numbers.
PL_INLINE bool beats(float v, float most) { return (IS_LEAST ? v < most : v > most) || (v != v && most == most); }
PL_INLINE bool beats(i32 v, i32 most) { return IS_LEAST ? v < most : v > most; }
PL_INLINE bool beats(i64 v, i64 most) { return IS_LEAST ? v < most : v > most; }
struct Part {
  Value most;
  int at;  // negative where there is none yet
  PL_INLINE void clear() { at = -1; most = (Value)0; }
  PL_INLINE void add(Value v, int idx) {
    if (at < 0 || beats(v, most)) { most = v; at = idx; }
    else if (LAST_WINS && !beats(most, v)) { at = idx > at ? idx : at; }
  }
  PL_INLINE void join(const Part& o) {
    if (o.at < 0) return;
    const bool same = at >= 0 && !beats(o.most, most) && !beats(most, o.most);
    if (at < 0 || beats(o.most, most)) { *this = o; }
    else if (same) { at = LAST_WINS ? max(at, o.at) : min(at, o.at); }
  }
};
#elif OP == LOG_SUM_EXP
struct Part {
  float most, sum;
  PL_INLINE void clear() { most = __int_as_float(0xff800000); sum = 0.0f; }
  PL_INLINE void add(float v, int) {
    if (v > most) { sum = sum * expf(most - v) + 1.0f; most = v; }
    else if (v == most) { sum += 1.0f; }
    else { sum += expf(v - most); }
  }
  PL_INLINE void join(const Part& o) {
    if (o.sum == 0.0f) return;
    if (sum == 0.0f) { *this = o; return; }
    const float top = fmaxf(most, o.most);
    sum = (most == top ? sum : sum * expf(most - top)) + (o.most == top ? o.sum : o.sum * expf(o.most - top));
    most = top;
  }
};
#else
struct Part {
  Value sum;
  PL_INLINE void clear() { sum = OP == PROD ? (Value)1 : (Value)0; }
  PL_INLINE void add(Value v, int) {
    if (OP == PROD) sum = pl_mul(sum, v);
    else if (OP == L1) sum = pl_add(sum, pl_abs(v));
    else if (OP == L2 || OP == SQUARES) sum = pl_add(sum, pl_mul(v, v));
    else sum = pl_add(sum, v);
  }
  PL_INLINE void join(const Part& o) { sum = OP == PROD ? pl_mul(sum, o.sum) : pl_add(sum, o.sum); }
};
#endif

typedef typename Wide<U>::type Result;

PL_INLINE Result finished(const Part& part, int n) {
#if IS_ARG
  return (Result)part.at;
#elif OP == MAX || OP == MIN
  if (part.at < 0) return (Result)(IS_LEAST ? __int_as_float(0x7f800000) : __int_as_float(0xff800000));
  return (Result)part.most;
#elif OP == LOG_SUM_EXP
  const float infinite = __int_as_float(0x7f800000);
  return fabsf(part.most) == infinite ? part.most : logf(part.sum) + part.most;
#elif OP == MEAN
  return (Result)(part.sum / (Value)n);
#elif OP == L2
  return (Result)sqrtf((float)part.sum);
#elif OP == LOG_SUM
  return (Result)logf((float)part.sum);
#else
  return (Result)part.sum;
#endif
}

// Where the elements of a result begin, where it goes, and how many results there are of a vector of them.
struct Spot { int from, to, left; };
PL_INLINE Spot spot_of(const ReduceArgs& a, u32 rest) {
  Spot spot = {0, 0, V};
#pragma unroll
  for (int i = 0; i < N_KEPT; i++) {
    int at = po_take(rest, a.kept[i]);
#if !ALONG
    if (i == 0) { at *= V; spot.left = a.n_inner - at; }
#endif
    spot.from += at * a.x_kept[i];
    spot.to += at * a.y_kept[i];
  }
  return spot;
}

#define RESULTS (256 / SHARERS)
#define LANES (ALONG ? 1 : V)

#ifndef FINISH
extern "C" __global__ void __launch_bounds__(256) reduce(const T* x, U* y, Part* parts, const ReduceArgs a) {
  let_next_begin();
  wait_for_inputs();
  __shared__ Part shared[256 * LANES];
#if ALONG
  const int sharer = threadIdx.x % SHARERS, result = threadIdx.x / SHARERS;
#else
  const int sharer = threadIdx.x / RESULTS, result = threadIdx.x % RESULTS;
#endif
  const u32 which = blockIdx.x * (u32)RESULTS + result;
  const bool there = which < (u32)a.n_results;
  const Spot spot = spot_of(a, there ? which : 0);
  const int from = spot.from, to = spot.to, left = spot.left;
  Part own[LANES];
#pragma unroll
  for (int j = 0; j < LANES; j++) own[j].clear();
  if (there) {
    const int begin = PARTS > 1 ? (int)blockIdx.y * a.per_part : 0;
    const int end = PARTS > 1 ? min(begin + a.per_part, a.n_elements) : a.n_elements;
#pragma unroll 4
    for (int r = begin + sharer; r < end; r += SHARERS) {
      u32 inner = (u32)r;
      int place = from;
#pragma unroll
      for (int i = 0; i < N_GONE; i++) {
        int at = i + 1 == N_GONE ? (int)inner : po_take(inner, a.gone[i]);
#if ALONG
        if (i == 0) at *= V;
#endif
        place += at * a.x_gone[i];
      }
      Value v[V];
#if ALONG
      // Rows of elements that are read V at a time end where the axis does.
      const u32 row = N_GONE > 1 ? (u32)r - po_div_by((u32)r, a.gone[0]) * a.gone[0].d : (u32)r;
      const int n = V > 1 ? a.n_inner - (int)row * V : 1;
      if (V == 1) v[0] = po_widen(x[place]); else po_load_part<T, V>(v, x + place, n, (Value)0);
#pragma unroll
      for (int j = 0; j < V; j++)
        if (j < n) own[0].add(v[j], (N_GONE > 1 ? (r - (int)row) / (int)a.gone[0].d * a.n_inner : 0) + (int)row * V + j);
#else
      po_load_part<T, V>(v, x + place, left, (Value)0);
#pragma unroll
      for (int j = 0; j < V; j++) own[j].add(v[j], r);
#endif
    }
  }
#pragma unroll
  for (int step = SHARERS / 2; step > 0; step >>= 1) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < LANES; j++) shared[j * 256 + threadIdx.x] = own[j];
    __syncthreads();
    if (sharer < step) {
      const int other = ALONG ? threadIdx.x + step : threadIdx.x + step * RESULTS;
#pragma unroll
      for (int j = 0; j < LANES; j++) own[j].join(shared[j * 256 + other]);
    }
  }
  if (!there || sharer != 0) return;
#pragma unroll
  for (int j = 0; j < LANES; j++) {
    if (j >= left) break;
#if PARTS > 1
    parts[((u64)blockIdx.y * (u32)a.n_results + which) * LANES + j] = own[j];
#else
    y[to + (ALONG ? 0 : j * a.y_kept[0])] = Narrow<U>::make(finished(own[j], a.n_gone));
#endif
  }
}
#else
extern "C" __global__ void __launch_bounds__(256) reduce_finish(U* y, const Part* parts, const ReduceArgs a) {
  let_next_begin();
  wait_for_inputs();
  const u32 idx = blockIdx.x * 256u + threadIdx.x;
  const u32 which = idx / LANES;
  const int lane = idx % LANES;
  if (which >= (u32)a.n_results) return;
  const Spot spot = spot_of(a, which);
  const int to = spot.to;
  if (lane >= spot.left) return;
  Part all = parts[(u64)which * LANES + lane];
  for (int p = 1; p < PARTS; p++) all.join(parts[((u64)p * (u32)a.n_results + which) * LANES + lane]);
  y[to + (ALONG ? 0 : lane * a.y_kept[0])] = Narrow<U>::make(finished(all, a.n_gone));
}
#endif
