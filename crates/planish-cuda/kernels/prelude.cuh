// The ground every kernel stands on: number types, conversions, wide loads and stores, asynchronous copies,
// matrix fragments and products, all by inline PTX. Nothing here or after it includes a toolkit's header.
//
// `__CUDA_ARCH__` decides what an instruction becomes: from sm_80 on copies are asynchronous and products take
// f16, bf16 and tf32; sm_75 has f16 products of half the depth and copies through registers. Products of floats of 8 bits
// (e4m3) come with sm_89.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define PL_INLINE __device__ __forceinline__
// Where a structure has a field, as a constant; NVRTC has no <stddef.h>.
#define PL_OFFSET(type, field) __INTADDR__(&((type*)0)->field)

// ---------------------------------------------------------------------------------------------------------
// Number types

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
// A float of 8 bits; see the end.
struct e4m3;
// A boolean: anything but zero is true.
struct b8 { u8 byte; };

PL_INLINE float to_f32(float v) { return v; }
PL_INLINE float to_f32(f16 v) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits)); return r; }
PL_INLINE float to_f32(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
PL_INLINE float to_f32(i32 v) { return (float)v; }
PL_INLINE float to_f32(i64 v) { return (float)v; }
PL_INLINE float to_f32(u8 v) { return (float)v; }
PL_INLINE float to_f32(i8 v) { return (float)v; }
PL_INLINE float to_f32(bool v) { return v ? 1.0f : 0.0f; }
PL_INLINE float to_f32(b8 v) { return v.byte != 0 ? 1.0f : 0.0f; }

template <class T> struct Of32;
template <> struct Of32<float> { static PL_INLINE float make(float v) { return v; } };
template <> struct Of32<f16> {
  static PL_INLINE f16 make(float v) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v)); return r; }
};
template <> struct Of32<bf16> {
  static PL_INLINE bf16 make(float v) {
    bf16 r;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
#else
    // To nearest, ties to even; NaN keeps a mantissa bit.
    u32 u = __float_as_uint(v);
    r.bits = (u & 0x7fffffffu) > 0x7f800000u ? (u16)((u >> 16) | 0x40u)
                                              : (u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
    return r;
  }
};
// Rounds to nearest, ties to even.
template <class T> PL_INLINE T from_f32(float v) { return Of32<T>::make(v); }

// Instructions that are the same for both half types but for a word of their names.
#if __CUDA_ARCH__ >= 800
#define PL_HALF_INSTRUCTIONS(H)                                                                 \
  PL_INLINE u32 convert2(H, float lo, float hi) {                                               \
    u32 r;                                                                                      \
    asm("cvt.rn." #H "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));                        \
    return r;                                                                                   \
  }                                                                                             \
  PL_INLINE u32 greater2(H, u32 a, u32 b) {                                                     \
    u32 r;                                                                                      \
    asm("max.NaN." #H "x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));                             \
    return r;                                                                                   \
  }
PL_HALF_INSTRUCTIONS(f16)
PL_HALF_INSTRUCTIONS(bf16)
#endif

// Two numbers in one word, `lo` in the lower half.
template <class H> struct Pair {
  static PL_INLINE u32 pack(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
    return convert2(H(), lo, hi);
#else
    return (u32)from_f32<H>(lo).bits | ((u32)from_f32<H>(hi).bits << 16);
#endif
  }
  static PL_INLINE float lo(u32 v) { H h = {(u16)v}; return to_f32(h); }
  static PL_INLINE float hi(u32 v) { H h = {(u16)(v >> 16)}; return to_f32(h); }
};

// Minus infinity twice.
template <class H> struct Least2;
template <> struct Least2<f16> { static constexpr u32 least = 0xfc00fc00u; };
template <> struct Least2<bf16> { static constexpr u32 least = 0xff80ff80u; };
// The larger of each half of two words; NaN wins.
template <class H> struct Max2 : Least2<H> {
  static PL_INLINE u32 of(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 800
    return greater2(H(), a, b);
#else
    const float x = Pair<H>::lo(a), y = Pair<H>::hi(a), z = Pair<H>::lo(b), w = Pair<H>::hi(b);
    return Pair<H>::pack(x != x || x > z ? x : z, y != y || y > w ? y : w);
#endif
  }
};

// a * b + c of each half, rounded once.
template <class H> PL_INLINE u32 fused2(u32 a, u32 b, u32 c);
#define PL_FUSED2(H)                                                                  \
  template <> PL_INLINE u32 fused2<H>(u32 a, u32 b, u32 c) {                          \
    u32 r;                                                                            \
    asm("fma.rn." #H "x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));        \
    return r;                                                                         \
  }
PL_FUSED2(f16)
#if __CUDA_ARCH__ >= 800
PL_FUSED2(bf16)
#endif

// The larger of each half of two words of integers.
template <class T> struct MaxHalves;
#if __CUDA_ARCH__ >= 900
#define PL_MAX_HALVES(T, OF)                                                    \
  template <> struct MaxHalves<T> {                                             \
    static PL_INLINE u32 of(u32 a, u32 b) {                                     \
      u32 r;                                                                    \
      asm("max." #OF "16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));            \
      return r;                                                                 \
    }                                                                           \
  };
#else
#define PL_MAX_HALVES(T, OF)                                                    \
  template <> struct MaxHalves<T> {                                             \
    static PL_INLINE u32 of(u32 a, u32 b) {                                     \
      const OF##16 al = (OF##16)a, ah = (OF##16)(a >> 16), bl = (OF##16)b, bh = (OF##16)(b >> 16); \
      return (u32)(u16)(al > bl ? al : bl) | (u32)(u16)(ah > bh ? ah : bh) << 16; \
    }                                                                           \
  };
typedef i16 s16;
#endif
PL_MAX_HALVES(i8, s)
PL_MAX_HALVES(u8, u)

// The bits of tf32 nearest to a number, ties away from zero.
PL_INLINE u32 to_tf32(u32 v) {
#if __CUDA_ARCH__ >= 800
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(v)));
  return r;
#else
  return v;
#endif
}

// ---------------------------------------------------------------------------------------------------------
// Eight numbers at once (16 or 32 bytes). Addresses are aligned to 16 bytes.

template <class T> struct Eight;
template <class H> struct EightOfPairs {
  static PL_INLINE void load(float (&v)[8], const void* at) {
    uint4 w = *(const uint4*)at;
    u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) { v[2 * i] = Pair<H>::lo(words[i]); v[2 * i + 1] = Pair<H>::hi(words[i]); }
  }
  static PL_INLINE void store(void* at, const float (&v)[8]) {
    uint4 w;
    w.x = Pair<H>::pack(v[0], v[1]);
    w.y = Pair<H>::pack(v[2], v[3]);
    w.z = Pair<H>::pack(v[4], v[5]);
    w.w = Pair<H>::pack(v[6], v[7]);
    *(uint4*)at = w;
  }
};
template <> struct Eight<f16> : EightOfPairs<f16> {};
template <> struct Eight<bf16> : EightOfPairs<bf16> {};
template <> struct Eight<float> {
  static PL_INLINE void load(float (&v)[8], const void* at) {
    float4 a = ((const float4*)at)[0], b = ((const float4*)at)[1];
    v[0] = a.x; v[1] = a.y; v[2] = a.z; v[3] = a.w;
    v[4] = b.x; v[5] = b.y; v[6] = b.z; v[7] = b.w;
  }
  static PL_INLINE void store(void* at, const float (&v)[8]) {
    ((float4*)at)[0] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4*)at)[1] = make_float4(v[4], v[5], v[6], v[7]);
  }
};
// Bytes as floats: one is put under the exponent of 2^23, so that subtracting that leaves it; conversions would take
// longer. FLIP turns the sign bit over, which makes signed ones unsigned and 128 larger.
template <u32 FLIP> struct EightBytes {
  static PL_INLINE void load(float (&v)[8], const void* at) {
    const uint2 w = *(const uint2*)at;
    of(v, w.x, w.y);
  }
  static PL_INLINE void of(float (&v)[8], u32 low, u32 high) {
    const u32 words[2] = {low ^ FLIP, high ^ FLIP};
#pragma unroll
    for (int i = 0; i < 8; i++)
      v[i] = __uint_as_float(__byte_perm(words[i / 4], 0x4b000000u, 0x7650u + i % 4)) - (FLIP ? 8388736.0f : 8388608.0f);
  }
};
template <> struct Eight<i8> : EightBytes<0x80808080u> {};
template <> struct Eight<u8> : EightBytes<0u> {};

// ---------------------------------------------------------------------------------------------------------
// Shared memory and asynchronous copies

PL_INLINE u32 shared_address(const void* p) {
  u32 r;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p));
  return r;
}

// 16 bytes from global to shared memory; zeros where `there` is false (the address is then not read).
PL_INLINE void copy_async16(u32 to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  u32 bytes = there ? 16u : 0u;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
  uint4 v = make_uint4(0u, 0u, 0u, 0u);
  if (there) v = *(const uint4*)from;
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
}
// The same of 4 bytes.
PL_INLINE void copy_async4(u32 to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  u32 bytes = there ? 4u : 0u;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(there ? *(const u32*)from : 0u) : "memory");
#endif
}
// The same of 4 or 8 bytes that are there, through the first-level cache.
template <int BYTES> PL_INLINE void copy_async_few(u32 to, const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
#else
#pragma unroll
  for (int i = 0; i < BYTES / 4; i++) copy_async4(to + 4 * i, (const u32*)from + i, true);
#endif
}
// The same, zeros where `there` is false.
template <int BYTES> PL_INLINE void copy_async_some(u32 to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(there ? BYTES : 0)
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < BYTES / 4; i++) copy_async4(to + 4 * i, (const u32*)from + i, there);
#endif
}
// The same through the first-level cache, for what the block reads again soon.
PL_INLINE void copy_async16_cached(u32 to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  u32 bytes = there ? 16u : 0u;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
  copy_async16(to, from, there);
#endif
}
PL_INLINE void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most `N` of this thread's committed groups are under way.
template <int N> PL_INLINE void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
// 16 bytes that nobody writes and no other block reads: they leave the first-level cache to others.
PL_INLINE uint4 load_once16(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}
PL_INLINE void store_shared16(u32 to, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

PL_INLINE void store_shared(u32 to, f16 v) { asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(v.bits) : "memory"); }
PL_INLINE void store_shared(u32 to, bf16 v) { asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(v.bits) : "memory"); }
PL_INLINE void store_shared(u32 to, i8 v) { asm volatile("st.shared.b8 [%0], %1;" ::"r"(to), "r"((i32)v) : "memory"); }
PL_INLINE void store_shared(u32 to, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory"); }

// ---------------------------------------------------------------------------------------------------------
// Matrix fragments. A matrix of ldmatrix is 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix
// l / 8, and holds of each matrix word l % 4 of row l / 4.

PL_INLINE void load_matrix4(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
PL_INLINE void load_matrix2(u32& a, u32& b, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at) : "memory");
}
PL_INLINE void load_matrix4_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// d (16x8, f32) += a (16 rows of 32 bytes) times b (32 bytes of 8 columns): a depth of 16 for the half types,
// of 8 for tf32, of 32 for e4m3. Lane l holds of d: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
struct tf32 {};
template <class T> PL_INLINE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
#if __CUDA_ARCH__ >= 800
#define PL_MULTIPLY(H, DEPTH)                                                                                        \
  template <> PL_INLINE void multiply<H>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {                         \
    asm volatile("mma.sync.aligned.m16n8k" #DEPTH ".row.col.f32." #H "." #H                                          \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                         \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                    \
  }
PL_MULTIPLY(f16, 16)
PL_MULTIPLY(bf16, 16)
PL_MULTIPLY(tf32, 8)
#if __CUDA_ARCH__ >= 890
PL_MULTIPLY(e4m3, 32)
#endif
#else
template <> PL_INLINE void multiply<f16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
#pragma unroll
  for (int i = 0; i < 2; i++)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
}
#endif

// d (16x8, f32) += a (16 rows of 32 places along k, of each four neighbours two elements) times b (32 places of 8 columns).
// `places` says of each element which of its four it is, in ascending order: lanes 2 SELECTOR and the next of each four tell.
template <class T> struct Sparse;
#if __CUDA_ARCH__ >= 800
// Compilers from CUDA 12.5 on want to be told that places ascend.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
#define PL_SPARSE "mma.sp::ordered_metadata"
#else
#define PL_SPARSE "mma.sp"
#endif
#define PL_MULTIPLY_SPARSE(H)                                                                                        \
  template <> struct Sparse<H> {                                                                                     \
    template <int SELECTOR>                                                                                          \
    static PL_INLINE void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places) {                \
      asm volatile(PL_SPARSE ".sync.aligned.m16n8k32.row.col.f32." #H "." #H                                         \
                   ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, %13;"                     \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),         \
                     "r"(places), "n"(SELECTOR));                                                                    \
    }                                                                                                                \
  };
PL_MULTIPLY_SPARSE(f16)
PL_MULTIPLY_SPARSE(bf16)
#endif

// d (16x8, i32) += a (16 rows of 32 bytes) times b (32 bytes of 8 columns), all signed. Lanes hold the same places as
// above.
template <class T> PL_INLINE void multiply(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  const u32 b[2] = {b0, b1};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int half = i % 2 * 2;
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(d[half]), "+r"(d[half + 1]) : "r"(a[i]), "r"(b[i / 2]));
  }
#endif
}

// ---------------------------------------------------------------------------------------------------------
// Warps

PL_INLINE float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
PL_INLINE float warp_max(float v) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}

// All threads of WARPS neighbouring warps, up to 15 groups of them in a block.
template <int WARPS> PL_INLINE void group_sync(int group) {
  if (WARPS == 1) __syncwarp();
  else asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(32 * WARPS) : "memory");
}

// 2 to the power of v, zero where the result would be denormal; within 2 units in the last place.
PL_INLINE float fast_exp2(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// One by v, within a unit in the last place; zero where v is beyond 2^126.
PL_INLINE float fast_reciprocal(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// ---------------------------------------------------------------------------------------------------------
// Dependent launches (sm_90 and later; nothing elsewhere). A kernel calls `wait_for_inputs` before it reads or
// writes what kernels before it touch, and `let_next_begin` when the next may occupy what it leaves free: at once,
// because the next one waits for all of this one anyway, and its blocks are then in place when this one ends.

PL_INLINE void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
PL_INLINE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---------------------------------------------------------------------------------------------------------
// Clusters (sm_90 and later)

#if __CUDA_ARCH__ >= 900
PL_INLINE u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
PL_INLINE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
// The same in two halves: between them a block goes on while others may still read from it.
PL_INLINE void cluster_leave() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }
PL_INLINE void cluster_left() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
// The address of the same place in the shared memory of block `rank` of the cluster.
PL_INLINE u32 cluster_address(u32 at, u32 rank) {
  u32 r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
  return r;
}
PL_INLINE void store_cluster(u32 at, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}
PL_INLINE float4 load_cluster16(u32 at) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
  return v;
}
#endif

// ---------------------------------------------------------------------------------------------------------
// Functions of generated programs, as the reference has them

PL_INLINE float pl_min(float a, float b) { return (a != a || a < b) ? a : b; }
PL_INLINE float pl_max(float a, float b) { return (a != a || a > b) ? a : b; }
PL_INLINE i32 pl_min(i32 a, i32 b) { return a < b ? a : b; }
PL_INLINE i32 pl_max(i32 a, i32 b) { return a > b ? a : b; }
PL_INLINE i64 pl_min(i64 a, i64 b) { return a < b ? a : b; }
PL_INLINE i64 pl_max(i64 a, i64 b) { return a > b ? a : b; }
PL_INLINE float pl_abs(float v) { return fabsf(v); }
PL_INLINE i32 pl_abs(i32 v) { return v < 0 ? (i32)(0u - (u32)v) : v; }
PL_INLINE i64 pl_abs(i64 v) { return v < 0 ? (i64)(0ull - (u64)v) : v; }
// Integers wrap.
PL_INLINE float pl_neg(float v) { return -v; }
PL_INLINE i32 pl_neg(i32 v) { return (i32)(0u - (u32)v); }
PL_INLINE i64 pl_neg(i64 v) { return (i64)(0ull - (u64)v); }
PL_INLINE float pl_add(float a, float b) { return a + b; }
PL_INLINE i32 pl_add(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
PL_INLINE i64 pl_add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
PL_INLINE float pl_sub(float a, float b) { return a - b; }
PL_INLINE i32 pl_sub(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
PL_INLINE i64 pl_sub(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
PL_INLINE float pl_mul(float a, float b) { return a * b; }
PL_INLINE i32 pl_mul(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
PL_INLINE i64 pl_mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
PL_INLINE float pl_fmod(float a, float b) { return fmodf(a, b); }
PL_INLINE i32 pl_fmod(i32 a, i32 b) { return b == -1 ? 0 : a % b; }
PL_INLINE i64 pl_fmod(i64 a, i64 b) { return b == -1 ? 0 : a % b; }
PL_INLINE float pl_div(float a, float b) { return a / b; }
// With the reciprocal known: what the product leaves puts the quotient right, but of numbers too large for that.
PL_INLINE float pl_div_by(float a, float b, float reciprocal) {
  const float q = a * reciprocal;
  return fabsf(q) < 1e30f ? fmaf(fmaf(-q, b, a), reciprocal, q) : q;
}
PL_INLINE i32 pl_div(i32 a, i32 b) { return b == -1 ? pl_neg(a) : a / b; }
PL_INLINE i64 pl_div(i64 a, i64 b) { return b == -1 ? pl_neg(a) : a / b; }
PL_INLINE float pl_sign(float v) { return v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : v != v ? v : 0.0f; }
PL_INLINE i32 pl_sign(i32 v) { return (v > 0) - (v < 0); }
PL_INLINE i64 pl_sign(i64 v) { return (v > 0) - (v < 0); }
// The remainder with the sign of the divisor.
template <class T> PL_INLINE T pl_mod(T a, T b) {
  T r = pl_fmod(a, b);
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}
template <class T> PL_INLINE T pl_prelu(T x, T slope) { return x < (T)0 ? pl_mul(slope, x) : x; }
// NaN stays.
template <class T> PL_INLINE T pl_clamp(T x, T lo, T hi) { x = x < lo ? lo : x; return x > hi ? hi : x; }

PL_INLINE float pl_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
PL_INLINE float pl_softplus(float x) { return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x)); }
#if GELU_IN_F8
// Products of E4M3 whose results are rounded to it: their sums are off by 2^-11 of all terms, and 8 instructions with one
// of the special units do instead of 21 with two. tanh is within 2^-11, and erf(x/sqrt(2)) as the tanh of these terms puts
// GELU within 2.8e-4.
PL_INLINE float fast_tanh(float v) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
PL_INLINE float half_and_tanh(float x, float linear, float cubic) {
  const float h = 0.5f * x;
  return fmaf(h, fast_tanh(x * fmaf(cubic, x * x, linear)), h);
}
PL_INLINE float pl_gelu(float x) { return half_and_tanh(x, 0.8001571f, 0.03470088f); }
PL_INLINE float pl_gelu_tanh(float x) { return half_and_tanh(x, 0.79788456f, 0.035677408f); }
#else
// x/2 erfc(-x/sqrt(2)), with erfc(z) = exp(-z*z) t P(t) and t = 1 / (1 + 0.3 z) for z >= 0: a third of the instructions of
// erfcf. P is fitted to 2e-8; all together is within 6e-7 of the value above -3, and within 7e-6 of the 1e-14 that is left
// at -8.
PL_INLINE float pl_gelu(float x) {
  const float t = fast_reciprocal(fmaf(0.212132034f, fabsf(x), 1.0f));
  // Half of P.
  float p = -0.064717151f;
  p = fmaf(p, t, 0.242548749f);
  p = fmaf(p, t, -0.255614281f);
  p = fmaf(p, t, 0.273198724f);
  p = fmaf(p, t, -0.0468164496f);
  p = fmaf(p, t, 0.107218482f);
  p = fmaf(p, t, 0.0742411315f);
  p = fmaf(p, t, 0.085345976f);
  p = fmaf(p, t, 0.0845948085f);
  const float tail = fabsf(x) * t * (p * fast_exp2(-0.721347520f * x * x));
  return x > 30.0f ? x : fmaxf(x, 0.0f) - tail;
}
PL_INLINE float pl_gelu_tanh(float x) {
  return x * pl_sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
}
#endif
PL_INLINE float pl_hard_sigmoid(float x, float alpha, float beta) {
  return pl_max(0.0f, pl_min(1.0f, alpha * x + beta));
}
PL_INLINE float pl_elu(float x, float alpha) { return x < 0.0f ? alpha * expm1f(x) : x; }
PL_INLINE float pl_celu(float x, float alpha) { return pl_max(0.0f, x) + pl_min(0.0f, alpha * expm1f(x / alpha)); }
PL_INLINE float pl_shrink(float x, float bias, float lambd) {
  return x < -lambd ? x + bias : x > lambd ? x - bias : 0.0f;
}
PL_INLINE bool pl_is_infinite(float x, bool negative, bool positive) {
  return (positive && x == __int_as_float(0x7f800000)) || (negative && x == __int_as_float(0xff800000));
}

// ---------------------------------------------------------------------------------------------------------
// Floats of 8 bits: a sign, 4 bits of exponent, 3 of mantissa, no infinities; NaN has all bits of the magnitude set

struct e4m3 {
  u8 bits;
  e4m3() = default;
  // By its code.
  PL_INLINE explicit constexpr e4m3(int code) : bits((u8)code) {}
  explicit e4m3(float) = delete;
};

#if __CUDA_ARCH__ >= 890 && !defined(PL_ON_HOST)
// Two of them in the lower half of a word: the nearest, ties to even, beyond 448 it is 448; NaN stays.
PL_INLINE u32 e4m3_pair(float lo, float hi) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
}
PL_INLINE void e4m3_numbers(float& lo, float& hi, u32 pair) {
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)pair));
  lo = Pair<f16>::lo(halves), hi = Pair<f16>::hi(halves);
}
// The same two as numbers of 16 bits, which hold them exactly.
template <class H> PL_INLINE u32 e4m3_halves(u32 pair);
template <> PL_INLINE u32 e4m3_halves<f16>(u32 pair) {
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)pair));
  return halves;
}
template <> PL_INLINE u32 e4m3_halves<bf16>(u32 pair) {
  float lo, hi;
  e4m3_numbers(lo, hi, pair);
  return Pair<bf16>::pack(lo, hi);
}
#else
PL_INLINE u32 e4m3_code(float v) {
  const u32 bits = __float_as_uint(v), magnitude = bits & 0x7fffffffu;
  // Numbers below 2^-6 are multiples of 2^-9, which adding 1.5 * 2^14 leaves in the lowest bits.
  const u32 small = __float_as_uint(__uint_as_float(magnitude) + 24576.0f) - __float_as_uint(24576.0f);
  const u32 normal = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
  const u32 code = magnitude < 0x3c800000u ? small : normal < 0x7eu ? normal : 0x7eu;
  return (bits >> 24 & 0x80u) | (magnitude > 0x7f800000u ? 0x7fu : code);
}
PL_INLINE float e4m3_number(u32 code) {
  const u32 magnitude = code & 0x7fu;
  const float normal = __uint_as_float(magnitude == 0x7fu ? 0x7fffffffu : (magnitude + (120u << 3)) << 20);
  const float v = magnitude < 8u ? (float)magnitude * 0.001953125f : normal;
  return code & 0x80u ? -v : v;
}
PL_INLINE u32 e4m3_pair(float lo, float hi) { return e4m3_code(lo) | e4m3_code(hi) << 8; }
PL_INLINE void e4m3_numbers(float& lo, float& hi, u32 pair) { lo = e4m3_number(pair & 255u), hi = e4m3_number(pair >> 8 & 255u); }
template <class H> PL_INLINE u32 e4m3_halves(u32 pair) {
  return Pair<H>::pack(e4m3_number(pair & 255u), e4m3_number(pair >> 8 & 255u));
}
#endif
#ifndef PL_ON_HOST
PL_INLINE void store_shared(u32 to, e4m3 v) { store_shared(to, (i8)v.bits); }
#endif

PL_INLINE float to_f32(e4m3 v) {
  float lo, hi;
  e4m3_numbers(lo, hi, v.bits);
  return lo;
}
template <> PL_INLINE e4m3 from_f32<e4m3>(float v) { return e4m3((int)(e4m3_pair(v, 0.0f) & 255u)); }
// Eight of them in two words.
PL_INLINE uint2 e4m3_eight(const float (&v)[8]) {
  uint2 r;
  r.x = e4m3_pair(v[0], v[1]) | e4m3_pair(v[2], v[3]) << 16;
  r.y = e4m3_pair(v[4], v[5]) | e4m3_pair(v[6], v[7]) << 16;
  return r;
}
template <class T> struct Eight;
template <> struct Eight<e4m3> {
  static PL_INLINE void load(float (&v)[8], const void* at) {
    const uint2 w = *(const uint2*)at;
    of(v, w.x, w.y);
  }
  static PL_INLINE void of(float (&v)[8], u32 low, u32 high) {
    e4m3_numbers(v[0], v[1], low & 0xffffu);
    e4m3_numbers(v[2], v[3], low >> 16);
    e4m3_numbers(v[4], v[5], high & 0xffffu);
    e4m3_numbers(v[6], v[7], high >> 16);
  }
};

// Conversions of generated programs: floats are cut towards zero, and what is out of range becomes the lowest
// number; integers keep their low bits; booleans ask for anything but zero.
template <class T> struct PlCast {
  template <class F> static PL_INLINE T of(F v) { return (T)v; }
  static PL_INLINE T of(e4m3 v) { return (T)to_f32(v); }
};
template <> struct PlCast<bool> { template <class F> static PL_INLINE bool of(F v) { return v != (F)0; } };
template <> struct PlCast<i32> {
  template <class F> static PL_INLINE i32 of(F v) { return (i32)v; }
  static PL_INLINE i32 of(float v) { return (v >= -2147483648.0f && v < 2147483648.0f) ? (i32)v : (i32)0x80000000; }
};
template <> struct PlCast<i64> {
  template <class F> static PL_INLINE i64 of(F v) { return (i64)v; }
  static PL_INLINE i64 of(float v) {
    return (v >= -9223372036854775808.0f && v < 9223372036854775808.0f) ? (i64)v : (i64)0x8000000000000000ull;
  }
};
template <class T, class F> PL_INLINE T pl_cast(F v) { return PlCast<T>::of(v); }
// A whole number to 8 bits: out of range it becomes the lowest or highest number, NaN the lowest. Any number to a float of
// 8 bits.
template <class T> struct PlSaturate;
// Adding 1.5 * 2^23 leaves it in the low bits, at less than a conversion takes.
template <class T, i32 LEAST, i32 MOST> struct SaturateBytes {
  static PL_INLINE T of(float v) { return (T)__float_as_uint(fminf(fmaxf(v, (float)LEAST), (float)MOST) + 12582912.0f); }
};
template <> struct PlSaturate<i8> : SaturateBytes<i8, -128, 127> {};
template <> struct PlSaturate<u8> : SaturateBytes<u8, 0, 255> {};
template <> struct PlSaturate<e4m3> { static PL_INLINE e4m3 of(float v) { return from_f32<e4m3>(v); } };
template <class T> PL_INLINE T pl_saturate(float v) { return PlSaturate<T>::of(v); }

// The largest number at each place of many words: two numbers of 16 bits, or four bytes.
template <class T> struct Largest {
  static constexpr u32 LEAST = Max2<T>::least;
  u32 v;
  PL_INLINE void clear() { v = LEAST; }
  PL_INLINE void take(u32 w) { v = Max2<T>::of(v, w); }
  PL_INLINE u32 get() const { return v; }
};
// Bytes are the upper parts of halves, whose lower parts do not change which upper part is the largest.
template <class T, u32 LOWEST> struct LargestBytes {
  static constexpr u32 LEAST = LOWEST;
  u32 odd, even;
  PL_INLINE void clear() { odd = even = LOWEST; }
  PL_INLINE void take(u32 w) { odd = MaxHalves<T>::of(odd, w); even = MaxHalves<T>::of(even, w << 8); }
  PL_INLINE u32 get() const { return __byte_perm(even, odd, 0x7351); }
};
template <> struct Largest<i8> : LargestBytes<i8, 0x80808080u> {};
template <> struct Largest<u8> : LargestBytes<u8, 0u> {};
