// What the kernels share that move, map and reduce: division by numbers that are known before the launch, wide loads
// and stores of any type, sums over a block. `Divisor` and the structures of arguments stand in front (see args.rs).

// Shared memory whose size the launch says.
#ifndef PO_DYNAMIC
#define PO_DYNAMIC extern __shared__ uint4 po_dynamic[];
#endif

// n / by.d for n below 2^31.
PL_INLINE u32 po_div_by(u32 n, const Divisor& by) { return (__umulhi(n, by.mul) + n) >> by.shift; }
// Takes the last axis off `rest`: returns the place along it.
PL_INLINE int po_take(u32& rest, const Divisor& by) {
  const u32 q = po_div_by(rest, by);
  const int at = (int)(rest - q * by.d);
  rest = q;
  return at;
}

// Where a line of x and of y begins, along N axes: `a` has the axes, innermost first, and both strides along them.
template <int N, class A> PL_INLINE void po_line(const A& a, u32 line, i64& from, i64& to) {
  from = to = 0;
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int at = po_take(line, a.axes[i]);
    from += (i64)at * a.x_strides[i];
    to += (i64)at * a.y_strides[i];
  }
}

// Tells in `fault`, where somebody looks, of an index outside an axis: its size in the low half of the word, the index
// in the high one, as near as 32 bits come. The word lies in the host's memory and is written whole; which of several
// stays does not matter.
PL_INLINE void po_tell(i64 index, int size, u64* fault) {
  if (fault) {
    const i64 most = 2147483647ll, least = -2147483647ll - 1;
    const i64 near = index > most ? most : index < least ? least : index;
    *(volatile u64*)fault = (u64)(u32)(i32)near << 32 | (u32)size;
  }
}
// The place that an index names, brought inside the axis where it is not, and told.
PL_INLINE i64 po_row(i64 index, int size, u64* fault) {
  if (index >= 0 && index < size) return index;
  po_tell(index, size, fault);
  return index < 0 ? 0 : size - 1;
}
// The same where negative indices count from the end.
PL_INLINE i64 po_inside(i64 index, int size, u64* fault) {
  const i64 place = index < 0 ? index + size : index;
  if (place >= 0 && place < size) return place;
  po_tell(index, size, fault);
  return place < 0 ? 0 : size - 1;
}

// Where a thread is along its N axes, innermost first; what is left of the thread's number is `outer`. False for
// threads beyond the last. `threads` is a structure `Threads`, which some kernels do not have.
template <int THREADS, class T, int N> PL_INLINE bool po_thread(const T& threads, int (&at)[N], int& outer) {
  u32 rest = blockIdx.x * (u32)THREADS + threadIdx.x;
  if (rest >= threads.n) return false;
#pragma unroll
  for (int i = 0; i < N; i++) at[i] = po_take(rest, threads.axes[i]);
  outer = (int)rest;
  return true;
}

// ---------------------------------------------------------------------------------------------------------
// Elements: stored as T, computed with as Wide<T>::type

template <class T> struct Wide { typedef T type; };
template <> struct Wide<f16> { typedef float type; };
template <> struct Wide<bf16> { typedef float type; };
template <> struct Wide<b8> { typedef bool type; };

PL_INLINE float po_widen(float v) { return v; }
PL_INLINE float po_widen(f16 v) { return to_f32(v); }
PL_INLINE float po_widen(bf16 v) { return to_f32(v); }
PL_INLINE bool po_widen(b8 v) { return v.byte != 0; }
PL_INLINE u8 po_widen(u8 v) { return v; }
PL_INLINE i32 po_widen(i32 v) { return v; }
PL_INLINE i64 po_widen(i64 v) { return v; }
PL_INLINE i8 po_widen(i8 v) { return v; }
PL_INLINE e4m3 po_widen(e4m3 v) { return v; }
PL_INLINE u16 po_widen(u16 v) { return v; }
PL_INLINE u32 po_widen(u32 v) { return v; }
PL_INLINE u64 po_widen(u64 v) { return v; }

template <class T> struct Narrow { static PL_INLINE T make(T v) { return v; } };
template <> struct Narrow<f16> { static PL_INLINE f16 make(float v) { return from_f32<f16>(v); } };
template <> struct Narrow<bf16> { static PL_INLINE bf16 make(float v) { return from_f32<bf16>(v); } };
template <> struct Narrow<b8> { static PL_INLINE b8 make(bool v) { b8 r = {(u8)(v ? 1 : 0)}; return r; } };

// A result that is handed over as a float: one, a whole number that is a byte, or one of the floats of 8 bits.
template <class T> struct Handed { static PL_INLINE typename Wide<T>::type over(float v) { return (typename Wide<T>::type)v; } };
template <> struct Handed<e4m3> { static PL_INLINE e4m3 over(float v) { return from_f32<e4m3>(v); } };

// A quotient by a scale as a number of 8 bits: an integer with a zero point, or a float.
template <class Q, int ZERO_POINT> struct Bytes {
  static PL_INLINE Q of(float v) { return pl_saturate<Q>(rintf(v) + (float)ZERO_POINT); }
};
template <int ZERO_POINT> struct Bytes<e4m3, ZERO_POINT> { static PL_INLINE e4m3 of(float v) { return pl_saturate<e4m3>(v); } };

// Results as they are stored.
template <class T, int V> struct Stored {
  typename Wide<T>::type v[V];
  PL_INLINE explicit Stored(const float (&from)[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = Handed<T>::over(from[i]);
  }
};

// Bytes of one access and how often; at most 16 at once.
template <int BYTES> struct Access { typedef uint4 type; static constexpr int n = BYTES / 16; };
template <> struct Access<8> { typedef uint2 type; static constexpr int n = 1; };
template <> struct Access<4> { typedef u32 type; static constexpr int n = 1; };
template <> struct Access<2> { typedef u16 type; static constexpr int n = 1; };
template <> struct Access<1> { typedef u8 type; static constexpr int n = 1; };

// V neighbours, at once where their address allows it. An operand that lies inside another one may begin
// anywhere, so the address decides, which is the same for all threads.
template <class T, int V> PL_INLINE void po_load(typename Wide<T>::type (&v)[V], const T* at) {
  typedef Access<V * (int)sizeof(T)> A;
  union { typename A::type all[A::n]; T each[V]; } u;
  if (V > 1 && ((u64)at & (sizeof(typename A::type) - 1)) == 0) {
#pragma unroll
    for (int i = 0; i < A::n; i++) u.all[i] = ((const typename A::type*)at)[i];
  } else {
#pragma unroll
    for (int i = 0; i < V; i++) u.each[i] = at[i];
  }
#pragma unroll
  for (int i = 0; i < V; i++) v[i] = po_widen(u.each[i]);
}
template <class T, int V> PL_INLINE void po_store(T* at, const typename Wide<T>::type (&v)[V]) {
  typedef Access<V * (int)sizeof(T)> A;
  union { typename A::type all[A::n]; T each[V]; } u;
#pragma unroll
  for (int i = 0; i < V; i++) u.each[i] = Narrow<T>::make(v[i]);
  if (V > 1 && ((u64)at & (sizeof(typename A::type) - 1)) == 0) {
#pragma unroll
    for (int i = 0; i < A::n; i++) ((typename A::type*)at)[i] = u.all[i];
  } else {
#pragma unroll
    for (int i = 0; i < V; i++) at[i] = u.each[i];
  }
}
// The first `n` of them; the rest is `fill`.
template <class T, int V> PL_INLINE void po_load_part(typename Wide<T>::type (&v)[V], const T* at, int n, typename Wide<T>::type fill) {
  if (n >= V) {
    po_load<T, V>(v, at);
  } else {
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = i < n ? po_widen(at[i]) : fill;
  }
}
template <class T, int V> PL_INLINE void po_store_part(T* at, const typename Wide<T>::type (&v)[V], int n) {
  if (n >= V) {
    po_store<T, V>(at, v);
  } else {
#pragma unroll
    for (int i = 0; i < V; i++)
      if (i < n) at[i] = Narrow<T>::make(v[i]);
  }
}
// V neighbours as they are stored, zeros where `there` is false. WIDE: at once, from an address that is known to be
// aligned; loads of many such stand beside each other without branches, so that they are under way together.
// Otherwise one by one, and zeros from the `left`th on.
template <class T, int V, bool WIDE> PL_INLINE void po_fetch(T (&v)[V], const T* at, bool there, int left) {
  typedef Access<V * (int)sizeof(T)> A;
  union { typename A::type all[A::n]; T each[V]; } u;
#pragma unroll
  for (int i = 0; i < V; i++) u.each[i] = T();
  if (WIDE) {
#pragma unroll
    for (int i = 0; i < A::n; i++)
      if (there) u.all[i] = ((const typename A::type*)at)[i];
  } else {
#pragma unroll
    for (int i = 0; i < V; i++)
      if (there && i < left) u.each[i] = at[i];
  }
#pragma unroll
  for (int i = 0; i < V; i++) v[i] = u.each[i];
}
// V elements that lie `step` apart.
template <class T, int V> PL_INLINE void po_gather(typename Wide<T>::type (&v)[V], const T* at, int step) {
  T each[V];
#pragma unroll
  for (int i = 0; i < V; i++) each[i] = at[(i64)i * step];
#pragma unroll
  for (int i = 0; i < V; i++) v[i] = po_widen(each[i]);
}
template <class T, int V> PL_INLINE void po_scatter(T* at, const typename Wide<T>::type (&v)[V], int step) {
#pragma unroll
  for (int i = 0; i < V; i++) at[(i64)i * step] = Narrow<T>::make(v[i]);
}

// ---------------------------------------------------------------------------------------------------------
// Over a block of threads: every thread gets the result. `scratch` has a place for each warp; the order of
// additions is fixed.

template <int THREADS, class F> PL_INLINE float po_over_block(float v, float* scratch, F join) {
  if (THREADS > 32) {
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = v;
    __syncthreads();
    v = scratch[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; i++) v = join(v, scratch[i]);
  }
  return v;
}
template <int THREADS> PL_INLINE float po_block_sum(float v, float* scratch) {
  return po_over_block<THREADS>(warp_sum(v), scratch, [](float a, float b) { return a + b; });
}
template <int THREADS> PL_INLINE float po_block_max(float v, float* scratch) {
  return po_over_block<THREADS>(warp_max(v), scratch, [](float a, float b) { return fmaxf(a, b); });
}
