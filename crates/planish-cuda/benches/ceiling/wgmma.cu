// How fast Hopper's warpgroup products are at most, on random numbers in shared memory and without any copies:
// products of 64 x 256 in f16 (depth 16), in signed bytes and in floats of 8 bits (depth 32), two warpgroups on each
// multiprocessor.
//
//   nvcc -O3 -gencode=arch=compute_90a,code=sm_90a wgmma.cu -o /tmp/wgmma && /tmp/wgmma

#include <cstdio>
#include <cstdlib>

constexpr int GROUPS = 2, ROUNDS = 4096, DEPTH = 4;
constexpr int A_BYTES = 64 * 128, B_BYTES = 256 * 128;

#define CHECK(call)                                                                      \
  do {                                                                                   \
    cudaError_t error = call;                                                            \
    if (error != cudaSuccess) {                                                          \
      std::printf("%s: %s\n", #call, cudaGetErrorString(error));                         \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

__device__ unsigned long long descriptor(const void *at) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(at);
  return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}

// 128 accumulators of a thread, eight at a time.
#define EIGHT(n) "%" #n "0, %" #n "1, %" #n "2, %" #n "3, %" #n "4, %" #n "5, %" #n "6, %" #n "7, %" #n "8, %" #n "9"
#define LIST                                                                                                          \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " EIGHT(1) ", " EIGHT(2) ", " EIGHT(3) ", " EIGHT(4) ", " EIGHT(5) ", "    \
  EIGHT(6) ", " EIGHT(7) ", " EIGHT(8) ", " EIGHT(9) ", " EIGHT(10) ", " EIGHT(11)                                     \
  ", %120, %121, %122, %123, %124, %125, %126, %127}"
#define S(c, i) c(s[i]), c(s[i + 1]), c(s[i + 2]), c(s[i + 3]), c(s[i + 4]), c(s[i + 5]), c(s[i + 6]), c(s[i + 7])
#define ALL(c)                                                                                                        \
  S(c, 0), S(c, 8), S(c, 16), S(c, 24), S(c, 32), S(c, 40), S(c, 48), S(c, 56), S(c, 64), S(c, 72), S(c, 80),           \
      S(c, 88), S(c, 96), S(c, 104), S(c, 112), S(c, 120)

struct F16 { typedef float sum; };
struct S8 { typedef int sum; };
struct E4M3 { typedef float sum; };

__device__ void product(F16, float (&s)[128], unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 " LIST ", %128, %129, 1, 1, 1, 0, 0;" : ALL("+f") : "l"(a), "l"(b));
}
__device__ void product(E4M3, float (&s)[128], unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 " LIST ", %128, %129, 1, 1, 1;" : ALL("+f") : "l"(a), "l"(b));
}
__device__ void product(S8, int (&s)[128], unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 " LIST ", %128, %129, 1;" : ALL("+r") : "l"(a), "l"(b));
}

template <class K> __global__ void __launch_bounds__(GROUPS * 128, 1) multiply(const uint4 *from, typename K::sum *to) {
  typedef typename K::sum T;
  extern __shared__ __align__(1024) unsigned char memory[];
  for (int i = threadIdx.x; i < (GROUPS * A_BYTES + B_BYTES) / 16; i += blockDim.x) ((uint4 *)memory)[i] = from[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const unsigned long long a = descriptor(memory + threadIdx.x / 128 * A_BYTES), b = descriptor(memory + GROUPS * A_BYTES);
  T s[128];
#pragma unroll
  for (int i = 0; i < 128; i++) s[i] = 0;
  for (int round = 0; round < ROUNDS; round++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < DEPTH; k++) product(K(), s, a + 2 * k, b + 2 * k);
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  T all = 0;
#pragma unroll
  for (int i = 0; i < 128; i++) all += s[i];
  to[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

template <class K> void measure(const char *name, double depth, unsigned mask) {
  typedef typename K::sum T;
  int n_sms;
  CHECK(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, 0));
  const int bytes = GROUPS * A_BYTES + B_BYTES;
  unsigned *host = (unsigned *)std::malloc(bytes);
  unsigned state = 1;
  for (int i = 0; i < bytes / 4; i++) state = state * 1664525u + 1013904223u, host[i] = (state ^ state >> 13) & mask;
  uint4 *from;
  T *to;
  CHECK(cudaMalloc(&from, bytes));
  CHECK(cudaMalloc(&to, n_sms * GROUPS * 128 * sizeof(T)));
  CHECK(cudaMemcpy(from, host, bytes, cudaMemcpyHostToDevice));
  CHECK(cudaFuncSetAttribute(multiply<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int turn = 0; turn < 6; turn++) {
    CHECK(cudaEventRecord(begin));
    for (int i = 0; i < 20; i++) multiply<K><<<n_sms, GROUPS * 128, bytes>>>(from, to);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaGetLastError());
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    const double operations = 20.0 * n_sms * GROUPS * ROUNDS * DEPTH * 2.0 * 64 * 256 * depth;
    if (turn > 0) std::printf("%s: %.0f T operations a second\n", name, operations / ms / 1e9);
  }
}

int main() {
  // Halves between -2 and 2.
  measure<F16>("wgmma f16", 16, 0xbfffbfffu);
  measure<S8>("wgmma s8", 32, ~0u);
  // Between -2 and 2 too.
  measure<E4M3>("wgmma e4m3", 32, 0xbfbfbfbfu);
}
