// A GPU for tests on machines without one: the prelude's functions and CUDA's own words in plain C++, threads of
// a block as fibers on one CPU thread. Blocks run one after the other, so shared memory is static.
// Headers of the host are not included: they would take most of the time to compile.
typedef __SIZE_TYPE__ size_t;
extern "C" {
void* memcpy(void*, const void*, size_t);
void* memset(void*, int, size_t);
void* aligned_alloc(size_t, size_t);
[[noreturn]] void abort();
int puts(const char*);
float expf(float), exp2f(float), logf(float), log2f(float), log1pf(float), expm1f(float), sqrtf(float), fabsf(float);
float fmodf(float, float), powf(float, float), fmaxf(float, float), fminf(float, float), fmaf(float, float, float);
float sinf(float), cosf(float), tanf(float), asinf(float), acosf(float), atanf(float), sinhf(float), coshf(float);
float tanhf(float), asinhf(float), acoshf(float), atanhf(float), erff(float), erfcf(float), rintf(float);
float floorf(float), ceilf(float);
double floor(double), ceil(double), fabs(double), rint(double), fmin(double, double), fmax(double, double);
}

// The prelude's types stand in front: i8 to u64.
struct b8 { u8 byte; };

#define PL_INLINE inline
// Instructions are those of the host.
#define PL_ON_HOST
#define PL_OFFSET(type, field) __builtin_offsetof(type, field)
#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __restrict__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __CUDA_ARCH__ 900
#define PO_DYNAMIC alignas(16) static uint4 po_dynamic[14592];

struct alignas(16) uint4 { u32 x, y, z, w; };
struct alignas(8) uint2 { u32 x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---------------------------------------------------------------------------------------------------------
// Fibers

struct Dim { u32 x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;

enum State { READY, AT_BLOCK, AT_WARP, AT_GROUP, DONE };
struct Fiber { void* sp; State state; int group, members; };
static const int MAX_THREADS = 1024;
static const size_t STACK = 64 << 10;
static Fiber fibers[MAX_THREADS];
static char* stacks;
static void* scheduler_sp;
static int current;

extern "C" void emu_switch(void** from, void* to);
asm(R"(
.text
.type emu_switch, @function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

static void stop_at(State state) {
  fibers[current].state = state;
  emu_switch(&fibers[current].sp, scheduler_sp);
}
// Blocks and fibers come one after the other.
inline u32 atomicMax(u32* at, u32 value) {
  const u32 old = *at;
  *at = old > value ? old : value;
  return old;
}
inline void __syncthreads() { stop_at(AT_BLOCK); }
inline void __syncwarp(u32 = 0) { stop_at(AT_WARP); }
template <int WARPS> inline void group_sync(int group) {
  fibers[current].group = group;
  fibers[current].members = 32 * WARPS;
  stop_at(AT_GROUP);
}

static void (*body)();
static void fiber_main() {
  body();
  stop_at(DONE);
  abort();
}

static void run_block(int n) {
  if (!stacks) stacks = (char*)aligned_alloc(4096, STACK * MAX_THREADS);
  for (int i = 0; i < n; i++) {
    u64* top = (u64*)(stacks + STACK * (i + 1));
    // As after a call: the stack is 8 off a multiple of 16 when the function begins.
    top -= 2;
    *top = (u64)&fiber_main;
    top -= 6;
    memset(top, 0, 48);
    fibers[i] = {top, READY, 0, 0};
  }
  for (;;) {
    bool ran = false;
    for (int i = 0; i < n; i++) {
      if (fibers[i].state != READY) continue;
      ran = true;
      current = i;
      threadIdx = {(u32)i, 0, 0};
      emu_switch(&scheduler_sp, fibers[i].sp);
    }
    bool released = false, all = true, live = false;
    for (int i = 0; i < n; i++) {
      if (fibers[i].state == DONE) continue;
      live = true;
      if (fibers[i].state != AT_BLOCK) all = false;
    }
    if (!live) return;
    for (int warp = 0; warp < n; warp += 32) {
      bool whole = true, any = false;
      for (int i = warp; i < warp + 32 && i < n; i++) {
        if (fibers[i].state == DONE) continue;
        any = true;
        if (fibers[i].state != AT_WARP) whole = false;
      }
      if (any && whole) {
        released = true;
        for (int i = warp; i < warp + 32 && i < n; i++)
          if (fibers[i].state == AT_WARP) fibers[i].state = READY;
      }
    }
    for (int i = 0; i < n; i++) {
      if (fibers[i].state != AT_GROUP) continue;
      const int group = fibers[i].group, members = fibers[i].members;
      int here = 0;
      for (int j = 0; j < n; j++) here += fibers[j].state == AT_GROUP && fibers[j].group == group;
      if (here != members) continue;
      released = true;
      for (int j = 0; j < n; j++)
        if (fibers[j].state == AT_GROUP && fibers[j].group == group) fibers[j].state = READY;
    }
    if (all) {
      released = true;
      for (int i = 0; i < n; i++)
        if (fibers[i].state == AT_BLOCK) fibers[i].state = READY;
    }
    if (!released && !ran) { puts("threads wait for each other for ever"); abort(); }
    if (!released) { puts("some threads of a warp or block missed a barrier"); abort(); }
  }
}

// What the lanes of each warp show each other.
static u32 lanes[MAX_THREADS][12];
template <class T> inline T shown(T v, int from) {
  memcpy(lanes[current], &v, sizeof(T));
  __syncwarp();
  T r;
  memcpy(&r, lanes[(current & ~31) + (from & 31)], sizeof(T));
  __syncwarp();
  return r;
}
template <class T> inline T __shfl_xor_sync(u32, T v, int mask) { return shown(v, (current & 31) ^ mask); }
template <class T> inline T __shfl_sync(u32, T v, int lane) { return shown(v, lane); }
template <class T> inline T __shfl_down_sync(u32, T v, int d) {
  int lane = current & 31;
  return shown(v, lane + d < 32 ? lane + d : lane);
}

// ---------------------------------------------------------------------------------------------------------
// CUDA's functions

inline float __int_as_float(u32 v) { float r; memcpy(&r, &v, 4); return r; }
inline float __uint_as_float(u32 v) { return __int_as_float(v); }
inline u32 __float_as_uint(float v) { u32 r; memcpy(&r, &v, 4); return r; }
inline int __float_as_int(float v) { return (int)__float_as_uint(v); }
inline u32 __umulhi(u32 a, u32 b) { return (u32)(((u64)a * b) >> 32); }
inline float fast_exp2(float v) { return exp2f(v); }
inline float fast_reciprocal(float v) { return 1.0f / v; }
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline float __expf(float v) { return expf(v); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
template <class T> inline T min(T a, T b) { return a < b ? a : b; }
template <class T> inline T max(T a, T b) { return a > b ? a : b; }

// ---------------------------------------------------------------------------------------------------------
// The prelude

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
inline float to_f32(float v) { return v; }
inline float to_f32(f16 v) { _Float16 h; memcpy(&h, &v, 2); return (float)h; }
inline float to_f32(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
inline float to_f32(u8 v) { return v; }
inline float to_f32(i8 v) { return v; }
template <class T> inline T from_f32(float v);
template <> inline float from_f32<float>(float v) { return v; }
template <> inline f16 from_f32<f16>(float v) { _Float16 h = (_Float16)v; f16 r; memcpy(&r, &h, 2); return r; }
template <> inline bf16 from_f32<bf16>(float v) {
  u32 u = __float_as_uint(v);
  bf16 r;
  r.bits = (u & 0x7fffffffu) > 0x7f800000u ? (u16)((u >> 16) | 0x40u) : (u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  return r;
}
template <class T> struct Pair {
  static u32 pack(float lo, float hi) { return (u32)from_f32<T>(lo).bits | ((u32)from_f32<T>(hi).bits << 16); }
  static float lo(u32 v) { T h = {(u16)v}; return to_f32(h); }
  static float hi(u32 v) { T h = {(u16)(v >> 16)}; return to_f32(h); }
};
template <class T> inline u32 fused2(u32 a, u32 b, u32 c) {
  return Pair<T>::pack((float)((double)Pair<T>::lo(a) * Pair<T>::lo(b) + Pair<T>::lo(c)),
                       (float)((double)Pair<T>::hi(a) * Pair<T>::hi(b) + Pair<T>::hi(c)));
}
template <class T> struct Least2 { static const u32 value = 0xfc00fc00u; };
template <> struct Least2<bf16> { static const u32 value = 0xff80ff80u; };
template <class T> struct Max2 {
  static const u32 least = Least2<T>::value;
  static u32 of(u32 a, u32 b) {
    const float x = Pair<T>::lo(a), y = Pair<T>::hi(a), z = Pair<T>::lo(b), w = Pair<T>::hi(b);
    return Pair<T>::pack(x != x || x > z ? x : z, y != y || y > w ? y : w);
  }
};
template <class T> struct HalfOf { typedef u16 type; };
template <> struct HalfOf<i8> { typedef i16 type; };
template <class T> struct MaxHalves {
  typedef typename HalfOf<T>::type H;
  static u32 of(u32 a, u32 b) {
    const H al = (H)a, ah = (H)(a >> 16), bl = (H)b, bh = (H)(b >> 16);
    return (u32)(u16)(al > bl ? al : bl) | (u32)(u16)(ah > bh ? ah : bh) << 16;
  }
};
inline u32 __byte_perm(u32 a, u32 b, u32 which) {
  const u64 both = (u64)b << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; i++) r |= (u32)(both >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
  return r;
}
inline float warp_sum(float v) {
  for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(~0u, v, step);
  return v;
}
inline float warp_max(float v) {
  for (int step = 16; step > 0; step >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
  return v;
}
inline void wait_for_inputs() {}
inline void let_next_begin() {}

// Addresses of shared memory are distances from something that lies beside it.
static char shared_base;
inline u32 shared_address(const void* p) { return (u32)(i32)((const char*)p - &shared_base); }
inline char* shared_pointer(u32 at) { return &shared_base + (i32)at; }
inline void copy_async16(u32 to, const void* from, bool there) {
  if (there) memcpy(shared_pointer(to), from, 16); else memset(shared_pointer(to), 0, 16);
}
template <int BYTES> inline void copy_async_some(u32 to, const void* from, bool there) {
  if (there) memcpy(shared_pointer(to), from, BYTES); else memset(shared_pointer(to), 0, BYTES);
}
template <int BYTES> inline void copy_async_few(u32 to, const void* from) { memcpy(shared_pointer(to), from, BYTES); }
inline uint4 load_once16(const void* from) { return *(const uint4*)from; }
inline void copy_async_commit() {}
template <int N> inline void copy_async_wait() {}
inline void store_shared16(u32 to, u32 a, u32 b, u32 c, u32 d) {
  u32 v[4] = {a, b, c, d};
  memcpy(shared_pointer(to), v, 16);
}
template <class T> inline void store_shared(u32 to, T v) { memcpy(shared_pointer(to), &v, sizeof(T)); }
inline void load_matrix4(u32 (&r)[4], u32 at) {
  for (int i = 0; i < 4; i++) {
    u32 row = shown(at, 8 * i + (current & 31) / 4);
    memcpy(&r[i], shared_pointer(row) + 4 * (current & 3), 4);
  }
}
inline void load_matrix4_transposed(u32 (&r)[4], u32 at) {
  for (int i = 0; i < 4; i++) {
    u16 two[2];
    for (int j = 0; j < 2; j++) {
      u32 row = shown(at, 8 * i + 2 * (current & 3) + j);
      memcpy(&two[j], shared_pointer(row) + 2 * ((current & 31) / 4), 2);
    }
    memcpy(&r[i], two, 4);
  }
}
struct Fragments { u32 v[6]; };
template <class T> inline void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  Fragments own = {{a[0], a[1], a[2], a[3], b0, b1}};
  memcpy(lanes[current], &own, sizeof own);
  __syncwarp();
  const int warp = current & ~31, lane = current & 31, group = lane / 4;
  for (int e = 0; e < 4; e++) {
    const int row = group + (e >= 2 ? 8 : 0), col = 2 * (lane & 3) + (e & 1);
    double sum = 0.0;
    for (int k = 0; k < 16; k++) {
      const u32 x = lanes[warp + (row & 7) * 4 + (k & 7) / 2][(row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)];
      const u32 y = lanes[warp + col * 4 + (k & 7) / 2][k >= 8 ? 5 : 4];
      sum += (double)((k & 1) ? Pair<T>::hi(x) : Pair<T>::lo(x)) * ((k & 1) ? Pair<T>::hi(y) : Pair<T>::lo(y));
    }
    d[e] += (float)sum;
  }
  __syncwarp();
}

struct SparseFragments { u32 v[9]; };
template <class T> struct Sparse {
  template <int SELECTOR>
  static inline void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places) {
    SparseFragments own = {{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], places}};
    memcpy(lanes[current], &own, sizeof own);
    __syncwarp();
    const int warp = current & ~31, lane = current & 31, group = lane / 4;
    for (int e = 0; e < 4; e++) {
      const int row = group + (e >= 2 ? 8 : 0), col = 2 * (lane & 3) + (e & 1), upper = row >= 8;
      double sum = 0.0;
      for (int four = 0; four < 8; four++) {
        const u32 x = lanes[warp + (row & 7) * 4 + (four & 3)][upper + (four >= 4 ? 2 : 0)];
        const u32 told = lanes[warp + (row & 7) * 4 + 2 * SELECTOR + (four >= 4)][8] >> (16 * upper + 4 * (four & 3));
        if ((told & 3) >= (told >> 2 & 3)) { puts("places of sparse elements do not ascend"); abort(); }
        for (int i = 0; i < 2; i++) {
          const int k = 4 * four + (told >> 2 * i & 3);
          const u32 y = lanes[warp + col * 4 + (k & 7) / 2][4 + k / 8];
          sum += (double)(i ? Pair<T>::hi(x) : Pair<T>::lo(x)) * ((k & 1) ? Pair<T>::hi(y) : Pair<T>::lo(y));
        }
      }
      d[e] += (float)sum;
    }
    __syncwarp();
  }
};

// ---------------------------------------------------------------------------------------------------------
// One launch of a kernel of any arguments

template <class F> struct Runner;
template <class... A> struct Runner<void (*)(A...)> {
  typedef void (*Kernel)(A...);
  static Kernel kernel;
  static void** args;
  static void thread();
};
template <size_t... I> struct Seq {};
template <size_t N, size_t... I> struct Make : Make<N - 1, N - 1, I...> {};
template <size_t... I> struct Make<0, I...> { typedef Seq<I...> type; };
template <class... A> void (*Runner<void (*)(A...)>::kernel)(A...);
template <class... A> void** Runner<void (*)(A...)>::args;
template <class... A, size_t... I> inline void spread(void (*kernel)(A...), void** args, Seq<I...>) {
  kernel(*(A*)args[I]...);
}
template <class... A> void Runner<void (*)(A...)>::thread() {
  spread(kernel, args, typename Make<sizeof...(A)>::type());
}
template <class... A> void launch(void (*kernel)(A...), const u32* grid, u32 threads, void** args) {
  typedef Runner<void (*)(A...)> R;
  R::kernel = kernel;
  R::args = args;
  body = &R::thread;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {threads, 1, 1};
  for (u32 z = 0; z < grid[2]; z++)
    for (u32 y = 0; y < grid[1]; y++)
      for (u32 x = 0; x < grid[0]; x++) {
        blockIdx = {x, y, z};
        run_block((int)threads);
      }
}
