// How eight neighbours of a row are finished with a bias that is in shared memory and a residual that may have come
// before. epilogue.cuh stands in front.
//
// Set from outside, besides what epilogue.cuh asks for:
//   BN           columns of a tile
//   EARLY        1: the residual has 16 bits and is fetched before the products begin

// Eight residuals of 16 bits. They may have been written while this kernel began, so they are not read through the
// read-only cache.
PL_INLINE uint4 fetch_residual(const TileEpilogueArgs &f, const Addresses &a, const Place &at, i32 n, i32 count) {
    uint4 v = make_uint4(0, 0, 0, 0);
#if EARLY
    if (count > 0) {
        const u16 *from = (const u16 *)a.residual + view_row<u16>(f.residual, at) + (i64)n * f.residual.c;
        if (f.residual.wide && count >= 8 && aligned16(a.residual)) {
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
        } else {
            // Rolled, as below: this way is rare and its text would stand in many places.
            u32 h[8] = {};
#pragma unroll 1
            for (int i = 0; i < 8 && i < count; i++) h[i] = from[i * f.residual.c];
            v = make_uint4(h[0] | h[1] << 16, h[2] | h[3] << 16, h[4] | h[5] << 16, h[6] | h[7] << 16);
        }
    }
#endif
    return v;
}

// What remains to be done with eight neighbouring accumulators of a row, of which `count` exist, and the store.
PL_INLINE void epilogue_row(const TileEpilogueArgs &f, const Addresses &a, float (&v)[8], const float *bias, uint4 early, const Place &at,
                          i32 n, i32 count) {
    if (count <= 0) return;
#if EPILOGUE_BIAS
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] += bias[i];
#endif
    float r[8];
#if EPILOGUE_RESIDUAL && EARLY
    u32 words[4] = {early.x, early.y, early.z, early.w};
#pragma unroll
    for (int i = 0; i < 4; i++) r[2 * i] = Pair<RES_T>::lo(words[i]), r[2 * i + 1] = Pair<RES_T>::hi(words[i]);
#elif EPILOGUE_RESIDUAL
    load8_float<RES_T>(r, a.residual, f.residual, at, n, count < 8 ? count : 8);
#endif
    between8(f, a, v, r, at, n, count < 8 ? count : 8);
    OUT_T *to = (OUT_T *)a.out + view_row<OUT_T>(f.out, at) + (i64)n * f.out.c;
    if (f.out.wide && count >= 8 && aligned16(a.out)) {
        Eight<OUT_T>::store(to, v);
    } else {
        float rest[8];
#pragma unroll
        for (int i = 0; i < 8; i++) rest[i] = v[i];
#pragma unroll 1
        for (int i = 0; i < 8 && i < count; i++) to[i * f.out.c] = from_f32<OUT_T>(rest[i]);
    }
}

// The bias of a tile's columns, in shared memory.
template <int THREADS> PL_INLINE void fetch_bias(float *to, const void *bias, i32 n0, i32 n, u32 thread) {
#if EPILOGUE_BIAS
#pragma unroll
    for (i32 k = 0; k < BN; k += THREADS) {
        i32 i = k + thread;
        if (i < BN) to[i] = n0 + i < n ? to_f32(((const BIAS_T *)bias)[n0 + i]) : 0.f;
    }
#endif
}
