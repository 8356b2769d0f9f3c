// Hopper's own instructions by inline PTX: transaction barriers in shared memory, TMA,
// warpgroup products, and accumulators sent between the blocks of a cluster. Stands after the prelude.

// A tensor map as the driver encodes it; kernels take it by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

// ---- transaction barriers -------------------------------------------------------------------------------

PL_INLINE void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Makes initialised barriers visible to TMA and to the other blocks of the cluster.
PL_INLINE void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

PL_INLINE void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

PL_INLINE void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of this parity is over.
PL_INLINE void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\n"
        "bra again;\n"
        "done:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// ---- TMA -----------------------------------------------------------------------------

PL_INLINE void map_prefetch(const TensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// A box of a tiled map at coordinates from the innermost dimension on.
PL_INLINE void copy_tile2(u32 to, const TensorMap *map, u32 barrier, i32 x, i32 y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

PL_INLINE void copy_tile3(u32 to, const TensorMap *map, u32 barrier, i32 x, i32 y, i32 z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

PL_INLINE void copy_tile4(u32 to, const TensorMap *map, u32 barrier, i32 x, i32 y, i32 z, i32 n) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(n)
        : "memory");
}

PL_INLINE void copy_tile5(u32 to, const TensorMap *map, u32 barrier, i32 x, i32 y, i32 z, i32 n, i32 m) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(n), "r"(m)
        : "memory");
}

// Pixels of an im2col map from the base pixel on, shifted by the tap's offset; padding reads as zero.
PL_INLINE void copy_pixels1(u32 to, const TensorMap *map, u32 barrier, i32 c, i32 w, i32 n, u16 dw) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2], {%6};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(n), "h"(dw)
        : "memory");
}

PL_INLINE void copy_pixels2(u32 to, const TensorMap *map, u32 barrier, i32 c, i32 w, i32 h, i32 n,
                                             u16 dw, u16 dh) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(dw), "h"(dh)
        : "memory");
}

PL_INLINE void copy_pixels3(u32 to, const TensorMap *map, u32 barrier, i32 c, i32 w, i32 h, i32 d, i32 n,
                                             u16 dw, u16 dh, u16 dd) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "h"(dw), "h"(dh), "h"(dd)
        : "memory");
}

// ---- warpgroup products ---------------------------------------------------------------------------------

// The warp's place in the block, as a number that the compiler knows to be the same in all lanes: branches on it keep
// the warp together, and descriptors stay in uniform registers instead of being moved there before every product.
PL_INLINE u32 warp_index() { return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); }

// Rows of `row_bytes` (128, 64 or 32), swizzled over that many bytes as TMA does, eight rows a group,
// groups `group_bytes` apart.
PL_INLINE u64 matrix_descriptor(u32 address, u32 row_bytes, u32 group_bytes) {
    u64 mode = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    return (u64)((address & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(group_bytes >> 4) << 32 | mode << 62;
}

PL_INLINE u64 matrix_descriptor(u32 address, u32 row_bytes) { return matrix_descriptor(address, row_bytes, row_bytes * 8); }

PL_INLINE void product_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

PL_INLINE void product_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING>
PL_INLINE void product_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// ---- clusters -------------------------------------------------------------------------------------------

PL_INLINE void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

PL_INLINE void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Puts 16 bytes into another block's shared memory and counts them on its barrier.
PL_INLINE void cluster_send(u32 address, u32 barrier, float a, float b, float c, float d) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(address),
        "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
        : "memory");
}

PL_INLINE void barrier_wait_cluster(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\n"
        "bra again;\n"
        "done:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

PL_INLINE float4 load_shared(u32 address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
    return v;
}
