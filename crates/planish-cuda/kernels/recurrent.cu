// The steps of a recurrent layer, one after the other in one launch.
//
// Some rows of one direction belong to BLOCKS blocks, a cluster. Each block has some units of the hidden state, with all
// their gates: their recurrent weights lie in its shared memory (RESIDENT) or are read from the second-level cache in
// every step. A step: every block multiplies the whole state by its weights, makes its part of the new state and writes
// it into the shared memory of all; then they wait for each other. The state is kept twice, so that one wait is enough.
//
// Set from outside: T the storage; CELL 0 tanh, 1 relu, 2 LSTM, 3 GRU whose reset comes before the product, 4 after it;
// GATES; ROWS of a cluster; BLOCKS; RESIDENT; THREADS; AT_ONCE gates that a warp reads from the cache together.
#define IS_LSTM (CELL == 2)
#define IS_EARLY (CELL == 3)
#define IS_LATE (CELL == 4)

// Weights in shared memory are words of one f32, or of two halves that follow each other along the sum; words of
// neighbouring gates lie side by side.
template <class S> struct Word {
  static constexpr int per = 2;
  static PL_INLINE u32 pack(float lo, float hi) { return Pair<S>::pack(lo, hi); }
  static PL_INLINE float part(u32 word, int i) { return i == 0 ? Pair<S>::lo(word) : Pair<S>::hi(word); }
};
template <> struct Word<float> {
  static constexpr int per = 1;
  static PL_INLINE u32 pack(float v, float) { return __float_as_uint(v); }
  static PL_INLINE float part(u32 word, int) { return __uint_as_float(word); }
};

// One value into the shared memory of every block of the cluster.
PL_INLINE void show(float* at, float v) {
#if BLOCKS > 1
  const u32 here = shared_address(at);
#pragma unroll
  for (int rank = 0; rank < BLOCKS; rank++) store_cluster(cluster_address(here, rank), v);
#else
  *at = v;
#endif
}

PL_INLINE void meet() {
#if BLOCKS > 1
  cluster_sync();
#else
  __syncthreads();
#endif
}

// Shared memory of a block, as the family counts it.
struct Parts {
  float *state, *reset, *sums, *own;
  u32* weights;
  int pitch;    // of a row of the state
  int n_gates;  // of this block's units: a row of the weights
};

// sums[part][gate - from][row] = weights of gates from..to times `values`, cut into parts along the sum.
PL_INLINE int products(const Parts& p, const T* r, const float* values, int from, int to, const RecurrentArgs& a, int unit,
                       i64 direction) {
  const int n = to - from;
#if RESIDENT
  const int wide = n >= THREADS ? THREADS : (n + 31) / 32 * 32;
  const int n_parts = THREADS / wide, part = threadIdx.x / wide;
  const int quads = p.pitch / 4, each = (quads + n_parts - 1) / n_parts;
  if (part < n_parts) {
    const int begin = part * each, end = begin + each < quads ? begin + each : quads;
    for (int gate = threadIdx.x % wide; gate < n; gate += wide) {
      float sums[ROWS] = {};
      const u32* word = p.weights + (i64)begin * (4 / Word<T>::per) * p.n_gates + from + gate;
#pragma unroll 4
      for (int quad = begin; quad < end; quad++) {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; i += Word<T>::per) {
          const u32 packed = *word;
          word += p.n_gates;
#pragma unroll
          for (int j = 0; j < Word<T>::per; j++) w[i + j] = Word<T>::part(packed, j);
        }
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
          const float4 v = *(const float4*)(values + row * p.pitch + quad * 4);
          sums[row] = fmaf(w[0], v.x, fmaf(w[1], v.y, fmaf(w[2], v.z, fmaf(w[3], v.w, sums[row]))));
        }
      }
#pragma unroll
      for (int row = 0; row < ROWS; row++) p.sums[((i64)part * n + gate) * ROWS + row] = sums[row];
    }
  }
  return n_parts;
#else
  // A warp has some gates at once, so that it waits for all of their weights together; its lanes have neighbours of the
  // sum.
  const int lane = threadIdx.x % 32, units = p.n_gates / GATES;
  for (int gate = threadIdx.x / 32 * AT_ONCE; gate < n; gate += THREADS / 32 * AT_ONCE) {
    float sums[AT_ONCE][ROWS] = {};
    const T* from_row[AT_ONCE];
#pragma unroll
    for (int g = 0; g < AT_ONCE; g++) {
      // Beyond the last one, the last one again: nobody reads its sum.
      const int mine = from + (gate + g < n ? gate + g : n - 1);
      const int at = unit + mine % units < a.hidden ? unit + mine % units : a.hidden - 1;
      from_row[g] = r + ((direction * GATES + mine / units) * a.hidden + at) * a.hidden;
    }
    for (int k = lane * 4; k < a.hidden; k += 128) {
      float w[AT_ONCE][4];
#pragma unroll
      for (int g = 0; g < AT_ONCE; g++) {
        if (k + 4 <= a.hidden) {
          po_load<T, 4>(w[g], from_row[g] + k);
        } else {
#pragma unroll
          for (int i = 0; i < 4; i++) w[g][i] = k + i < a.hidden ? po_widen(from_row[g][k + i]) : 0.0f;
        }
      }
#pragma unroll
      for (int row = 0; row < ROWS; row++) {
        const float4 v = *(const float4*)(values + row * p.pitch + k);
#pragma unroll
        for (int g = 0; g < AT_ONCE; g++)
          sums[g][row] = fmaf(w[g][0], v.x, fmaf(w[g][1], v.y, fmaf(w[g][2], v.z, fmaf(w[g][3], v.w, sums[g][row]))));
      }
    }
#pragma unroll
    for (int g = 0; g < AT_ONCE; g++)
#pragma unroll
      for (int row = 0; row < ROWS; row++) {
        const float sum = warp_sum(sums[g][row]);
        if (lane == 0 && gate + g < n) p.sums[(gate + g) * ROWS + row] = sum;
      }
  }
  return 1;
#endif
}

// A gate's sum of all parts.
PL_INLINE float joined(const Parts& p, int n_parts, int n, int gate, int row) {
  float sum = 0.0f;
  for (int part = 0; part < n_parts; part++) sum += p.sums[((i64)part * n + gate) * ROWS + row];
  return sum;
}

// What the inputs of a step add to the gates of a unit.
PL_INLINE void load_added(float (&v)[GATES], const float* pre, const RecurrentArgs& a, i64 direction, int time, int row,
                          int unit) {
  const float* at = pre + ((direction * a.seq + time) * a.batch + row) * GATES * a.hidden + unit;
#pragma unroll
  for (int gate = 0; gate < GATES; gate++) v[gate] = at[(i64)gate * a.hidden];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    recurrent(const float* pre, const T* r, const T* b, const T* h0, const T* c0, T* y, T* y_h, T* y_c,
              const RecurrentArgs a) {
  let_next_begin();
  wait_for_inputs();
  PO_DYNAMIC
#if BLOCKS > 1
  const int rank = cluster_rank();
#else
  const int rank = 0;
#endif
  const int groups = (a.batch + ROWS - 1) / ROWS, group = blockIdx.x / BLOCKS;
  const i64 direction = group / groups;
  const int first = group % groups * ROWS, rows = a.batch - first < ROWS ? a.batch - first : ROWS;
  const int unit = rank * a.units;
  const int mine = a.hidden - unit < a.units ? a.hidden - unit : a.units;  // may be none
  Parts p;
  p.pitch = (a.hidden + 3) / 4 * 4;
  p.n_gates = GATES * a.units;
  p.state = (float*)po_dynamic;
  p.reset = p.state + 2 * ROWS * p.pitch;
  p.own = p.reset + (IS_EARLY ? ROWS * p.pitch : 0);
  p.sums = p.own + (a.units * ROWS + 3) / 4 * 4;
  p.weights = (u32*)(p.sums + a.n_sums);

  for (int i = threadIdx.x; i < 2 * ROWS * p.pitch; i += THREADS) {
    const int k = i % p.pitch, row = i / p.pitch % ROWS;
    const bool there = h0 && i < ROWS * p.pitch && row < rows && k < a.hidden;
    p.state[i] = there ? po_widen(h0[(direction * a.batch + first + row) * a.hidden + k]) : 0.0f;
  }
  if (IS_EARLY)
    for (int i = threadIdx.x; i < ROWS * p.pitch; i += THREADS) p.reset[i] = 0.0f;
  for (int i = threadIdx.x; i < a.units * ROWS; i += THREADS) {
    const int at = i % a.units, row = i / a.units;
    const bool there = IS_LSTM && c0 && row < rows && at < mine;
    p.own[i] = there ? po_widen(c0[(direction * a.batch + first + row) * a.hidden + unit + at]) : 0.0f;
  }
#if RESIDENT
  for (int i = threadIdx.x; i < p.pitch / Word<T>::per * p.n_gates; i += THREADS) {
    // Neighbouring threads read neighbours along the sum.
    const int words = p.pitch / Word<T>::per, k = i % words * Word<T>::per, gate = i / words;
    const int at = gate % a.units;
    const T* from = r + ((direction * GATES + gate / a.units) * a.hidden + unit + at) * a.hidden;
    const float lo = at < mine && k < a.hidden ? po_widen(from[k]) : 0.0f;
    const float hi = Word<T>::per == 2 && at < mine && k + 1 < a.hidden ? po_widen(from[k + 1]) : 0.0f;
    p.weights[k / Word<T>::per * p.n_gates + gate] = Word<T>::pack(lo, hi);
  }
#endif
  meet();

  const int width = GATES * a.hidden;
  const bool is_backward = a.reverse >> direction & 1;
  // This thread's first unit: what the inputs add is loaded a step ahead, and its state goes out a step late, so that no
  // wait of the cluster, which waits for memory too, is made longer by them.
  const int own_unit = threadIdx.x % a.units, own_row = threadIdx.x / a.units;
  const bool is_busy = own_unit < mine && own_row < rows;
  float coming[GATES] = {};
  if (is_busy && a.seq > 0) load_added(coming, pre, a, direction, is_backward ? a.seq - 1 : 0, first + own_row, unit + own_unit);
  float late = 0.0f;
  i64 late_at = -1;
  for (int step = 0; step < a.seq; step++) {
    const int time = is_backward ? a.seq - 1 - step : step;
    const float* now = p.state + (step & 1) * ROWS * p.pitch;
    float* next = p.state + (~step & 1) * ROWS * p.pitch;
    const float* added = pre + ((direction * a.seq + time) * a.batch + first) * width + unit;
    float ahead[GATES];
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) ahead[gate] = coming[gate];
    if (is_busy && step + 1 < a.seq)
      load_added(coming, pre, a, direction, is_backward ? time - 1 : time + 1, first + own_row, unit + own_unit);
    if (y && late_at >= 0) y[late_at] = Narrow<T>::make(late);
#define ADDED(gate) (i == (int)threadIdx.x ? ahead[gate] : added[(i64)row * width + (gate) * a.hidden + at])
    const int most = IS_EARLY ? 2 * a.units : p.n_gates;
    int n_parts = products(p, r, now, 0, most, a, unit, direction);
    __syncthreads();
#if IS_EARLY
    for (int i = threadIdx.x; i < a.units * rows; i += THREADS) {
      const int at = i % a.units, row = i / a.units;
      if (at >= mine) continue;
      const float z = pl_sigmoid(joined(p, n_parts, most, at, row) + ADDED(0));
      const float reset = pl_sigmoid(joined(p, n_parts, most, a.units + at, row) + ADDED(1));
      p.own[i] = z;
      show(p.reset + row * p.pitch + unit + at, reset * now[row * p.pitch + unit + at]);
    }
    meet();
    n_parts = products(p, r, p.reset, 2 * a.units, p.n_gates, a, unit, direction);
    __syncthreads();
#endif
    for (int i = threadIdx.x; i < a.units * rows; i += THREADS) {
      const int at = i % a.units, row = i / a.units;
      if (at >= mine) continue;
      const float before = now[row * p.pitch + unit + at];
      float h;
#if CELL == 0
      h = tanhf(joined(p, n_parts, most, at, row) + ADDED(0));
#elif CELL == 1
      h = pl_max(joined(p, n_parts, most, at, row) + ADDED(0), 0.0f);
#elif IS_LSTM
      const float in = pl_sigmoid(joined(p, n_parts, most, at, row) + ADDED(0));
      const float out = pl_sigmoid(joined(p, n_parts, most, a.units + at, row) + ADDED(1));
      const float forget = pl_sigmoid(joined(p, n_parts, most, 2 * a.units + at, row) + ADDED(2));
      const float candidate = tanhf(joined(p, n_parts, most, 3 * a.units + at, row) + ADDED(3));
      const float c = fmaf(forget, p.own[i], in * candidate);
      p.own[i] = c;
      h = out * tanhf(c);
#elif IS_EARLY
      const float z = p.own[i];
      const float candidate = tanhf(joined(p, n_parts, a.units, at, row) + ADDED(2));
      h = fmaf(1.0f - z, candidate, z * before);
#else
      const float z = pl_sigmoid(joined(p, n_parts, most, at, row) + ADDED(0));
      const float reset = pl_sigmoid(joined(p, n_parts, most, a.units + at, row) + ADDED(1));
      const float bias = b ? po_widen(b[direction * 2 * width + width + 2 * a.hidden + unit + at]) : 0.0f;
      const float fed_back = joined(p, n_parts, most, 2 * a.units + at, row) + bias;
      const float candidate = tanhf(fmaf(reset, fed_back, ADDED(2)));
      h = fmaf(1.0f - z, candidate, z * before);
#endif
      show(next + row * p.pitch + unit + at, h);
      if (y) {
        const i64 line = ((i64)time * a.directions + direction) * a.batch + first + row;
        if (i == (int)threadIdx.x) {
          late = h;
          late_at = line * a.hidden + unit + at;
        } else {
          y[line * a.hidden + unit + at] = Narrow<T>::make(h);
        }
      }
      if (step + 1 == a.seq) {
        const i64 line = (direction * a.batch + first + row) * a.hidden + unit + at;
        if (y_h) y_h[line] = Narrow<T>::make(h);
        if (IS_LSTM && y_c) y_c[line] = Narrow<T>::make(p.own[i]);
      }
    }
    meet();
  }
  if (y && late_at >= 0) y[late_at] = Narrow<T>::make(late);
  // Without a step there is no state, not even the initial one.
  if (a.seq == 0) {
    for (int i = threadIdx.x; i < a.units * rows; i += THREADS) {
      const int at = i % a.units, row = i / a.units;
      const i64 line = (direction * a.batch + first + row) * a.hidden + unit + at;
      if (at < mine && y_h) y_h[line] = Narrow<T>::make(0.0f);
      if (at < mine && IS_LSTM && y_c) y_c[line] = Narrow<T>::make(0.0f);
    }
  }
}
