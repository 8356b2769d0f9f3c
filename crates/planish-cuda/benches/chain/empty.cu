// The steps of an empty chain: as a kernel each, and as phases of one kernel with a barrier over its grid between them.
//
// Set from outside:
//   WORK      0: nothing; 1: a word of each block; 2: an activation
//   VECTORS   with WORK 2: its size, in vectors of 16 bytes
//
// Each step reads what another block wrote in the step before and writes it raised by one, so that a step that began
// too early leaves a number that is too small.

// Words of two blocks lie in different sectors.
#define SECTOR 8

PL_INLINE u32 load_word(const u32* at) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
// Past the first-level cache: other multiprocessors write between two phases.
PL_INLINE uint4 load_vector(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
  return v;
}

// What a step that joins two branches writes where they do not stand where they should.
#define APART 0x80000000u

PL_INLINE u32 joined(u32 one, u32 other, u32 ahead) { return one == other + ahead ? one : APART; }

// `other`: the result of a second branch that the step joins, null for most; the first is `ahead` steps ahead of it.
PL_INLINE void work(const u32* from, const u32* other, u32 ahead, u32* to) {
#if WORK == 1
  if (threadIdx.x == 0) {
    const u32 neighbour = blockIdx.x + 1 == gridDim.x ? 0 : blockIdx.x + 1;
    u32 v = load_word(from + neighbour * SECTOR);
    if (other) v = joined(v, load_word(other + neighbour * SECTOR), ahead);
    to[blockIdx.x * SECTOR] = v + 1;
  }
#elif WORK == 2
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < VECTORS; i += gridDim.x * blockDim.x) {
    const u32 j = i < VECTORS / 2 ? i + VECTORS / 2 : i - VECTORS / 2;
    uint4 v = load_vector((const uint4*)from + j);
    if (other) {
      const uint4 o = load_vector((const uint4*)other + j);
      v = make_uint4(joined(v.x, o.x, ahead), joined(v.y, o.y, ahead), joined(v.z, o.z, ahead), joined(v.w, o.w, ahead));
    }
    ((uint4*)to)[i] = make_uint4(v.x + 1, v.y + 1, v.z + 1, v.w + 1);
  }
#endif
}

#define STEP const u32 *from, const u32 *other, u32 ahead, u32 *to

extern "C" __global__ void __launch_bounds__(128) step_plain(STEP) { work(from, other, ahead, to); }

// The next may begin at once, and waits by itself.
extern "C" __global__ void __launch_bounds__(128) step_early(STEP) {
  let_next_begin();
  wait_for_inputs();
  work(from, other, ahead, to);
}

// The next may begin when this one's inputs are there.
extern "C" __global__ void __launch_bounds__(128) step_late(STEP) {
  wait_for_inputs();
  let_next_begin();
  work(from, other, ahead, to);
}

// ---------------------------------------------------------------------------------------------------------
// Barriers over the grid. What they count goes on from launch to launch.

PL_INLINE u32 load_acquire(const u32* at) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
PL_INLINE u32 add_release(u32* at) {
  u32 v;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], 1;" : "=r"(v) : "l"(at) : "memory");
  return v;
}
PL_INLINE void store_release(u32* at, u32 v) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory"); }
PL_INLINE bool before(u32 a, u32 b) { return (i32)(a - b) < 0; }

// All add to one counter, and wait until it has grown by their number.
struct Counter {
  u32 target;
  bool begun;
  PL_INLINE void start(u32*) { begun = false; }
  PL_INLINE void wait(u32* count, u32 n) {
    const u32 old = add_release(count);
    if (!begun) target = old - old % n, begun = true;
    target += n;
    while (before(load_acquire(count), target)) {}
  }
  PL_INLINE void sync(u32* count) {
    __syncthreads();
    if (threadIdx.x == 0) wait(count, gridDim.x);
    __syncthreads();
  }
};

// Each block raises a flag of its own, and looks at those of all others.
struct Flags {
  u32 turn;
  PL_INLINE void start(u32* flags) { turn = flags[blockIdx.x]; }
  PL_INLINE void sync(u32* flags) {
    turn++;
    __syncthreads();
    if (threadIdx.x == 0) store_release(flags + blockIdx.x, turn);
    for (u32 i = threadIdx.x; i < gridDim.x; i += blockDim.x)
      while (before(load_acquire(flags + i), turn)) {}
    __syncthreads();
  }
};

// Clusters gather by their own barrier, and one block of each adds to the counter.
struct Clusters {
  Counter counter;
  u32 size;
  PL_INLINE void start(u32* count) {
    counter.start(count);
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  }
  PL_INLINE void sync(u32* count) {
    cluster_sync();
    if (cluster_rank() == 0 && threadIdx.x == 0) counter.wait(count, gridDim.x / size);
    cluster_sync();
  }
};

// Phase p reads buffer p and writes buffer p + 1 of `n_buffers`, which follow each other `stride` words apart.
#define PHASES u32 *buffers, u32 stride, u32 n_buffers, u32 n_phases, u32 *barrier

template <class B> PL_INLINE void run_phases(PHASES) {
  B over_grid;
  over_grid.start(barrier);
  u32 at = 0;
  for (u32 p = 0; p < n_phases; p++) {
    if (p > 0) over_grid.sync(barrier);
    const u32 next = at + 1 == n_buffers ? 0 : at + 1;
    work(buffers + at * stride, nullptr, 0, buffers + next * stride);
    at = next;
  }
}

extern "C" __global__ void __launch_bounds__(128) phases_counter(PHASES) {
  run_phases<Counter>(buffers, stride, n_buffers, n_phases, barrier);
}
extern "C" __global__ void __launch_bounds__(128) phases_flags(PHASES) {
  run_phases<Flags>(buffers, stride, n_buffers, n_phases, barrier);
}
extern "C" __global__ void __launch_bounds__(128) phases_clusters(PHASES) {
  run_phases<Clusters>(buffers, stride, n_buffers, n_phases, barrier);
}
