// How eight neighbours of a row are finished with scales and a bias that are in shared memory and a residual that may have
// come before. epilogue.cuh stands in front.
//
// Set from outside, besides what epilogue.cuh asks for:
//   BN           columns of a tile
//   EARLY        1: the residual has 16 bits or 8 and is fetched before the products begin

// Eight residuals of 16 bits or 8. They may have been written while this kernel began, so they are not read through the
// read-only cache.
PL_INLINE uint4 fetch_residual(const TileEpilogueArgs &f, const Addresses &a, const Place &at, i32 n, i32 count) {
    uint4 v = make_uint4(0, 0, 0, 0);
#if EARLY
#if RES_BYTES
    if (count > 0) {
        const u8 *from = (const u8 *)a.residual + view_row<u8>(f.residual, at) + (i64)n * f.residual.c;
        if (f.residual.wide && count >= 8 && aligned16(a.residual)) {
            asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from) : "memory");
        } else {
            u32 b[8] = {};
#pragma unroll 1
            for (int i = 0; i < 8 && i < count; i++) b[i] = from[i * f.residual.c];
            v.x = b[0] | b[1] << 8 | b[2] << 16 | b[3] << 24;
            v.y = b[4] | b[5] << 8 | b[6] << 16 | b[7] << 24;
        }
    }
#else
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
#endif
    return v;
}

// Scales and biases of eight neighbouring columns.
struct Columns {
    float scale[8], bias[8];

    // `column` is their first place in what fetch_columns brought.
    PL_INLINE Columns(const TileEpilogueArgs &f, const float *column) {
#pragma unroll
        for (int i = 0; i < 8; i++) scale[i] = f.factor, bias[i] = 0.f;
        if (EPILOGUE_SCALE == 2) Eight<float>::load(scale, column + BN);
        if (EPILOGUE_BIAS) Eight<float>::load(bias, column);
    }
};

// Residuals as fetch_residual brought them.
PL_INLINE void residual_of(const TileEpilogueArgs &f, float (&r)[8], const uint4 &early) {
#if EPILOGUE_RESIDUAL && RES_BYTES
    Eight<RES_T>::of(r, early.x, early.y);
    finish_residual(f, r);
#elif EPILOGUE_RESIDUAL && EARLY
    u32 words[4] = {early.x, early.y, early.z, early.w};
#pragma unroll
    for (int i = 0; i < 4; i++) r[2 * i] = Pair<RES_T>::lo(words[i]), r[2 * i + 1] = Pair<RES_T>::hi(words[i]);
#endif
}

// What remains to be done with eight neighbouring accumulators of a row, of which `count` exist, before they are stored.
PL_INLINE void finish_row(const TileEpilogueArgs &f, const Addresses &a, float (&v)[8], const Columns &columns, uint4 early,
                          const Place &at, i32 n, i32 count) {
    float r[8];
#if EARLY
    residual_of(f, r, early);
#elif EPILOGUE_RESIDUAL
    load8_float<RES_T>(r, a.residual, f.residual, at, n, count < 8 ? count : 8);
    finish_residual(f, r);
#endif
#if IN_STEPS
    count_steps(f, v, columns.scale, columns.bias, r);
#else
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (EPILOGUE_SCALE) v[i] *= columns.scale[i];
        if (EPILOGUE_BIAS) v[i] += columns.bias[i];
    }
    between8(f, a, v, r, at, n, count < 8 ? count : 8);
#endif
}

PL_INLINE void store_row(const TileEpilogueArgs &f, const Addresses &a, const float (&v)[8], const Place &at, i32 n, i32 count) {
    OUT_T *to = (OUT_T *)a.out + view_row<OUT_T>(f.out, at) + (i64)n * f.out.c;
    if (f.out.wide && count >= 8 && aligned16(a.out)) {
        store8(f, to, v);
    } else {
        float rest[8];
#pragma unroll
        for (int i = 0; i < 8; i++) rest[i] = v[i];
#pragma unroll 1
        for (int i = 0; i < 8 && i < count; i++) to[i * f.out.c] = stored(f, rest[i]);
    }
}

// Both.
PL_INLINE void epilogue_row(const TileEpilogueArgs &f, const Addresses &a, float (&v)[8], const Columns &columns, uint4 early,
                            const Place &at, i32 n, i32 count) {
    if (count <= 0) return;
    finish_row(f, a, v, columns, early, at, n, count);
    store_row(f, a, v, at, n, count);
}

// Floats that a column has in shared memory: its bias, and BN later its scale.
#define COLUMN_FLOATS (EPILOGUE_SCALE == 2 ? 2 : 1)

// Bias and scales of a tile's columns, to shared memory. `period`: after so many columns they repeat, or never.
template <int THREADS>
PL_INLINE void fetch_columns(float *to, const TileEpilogueArgs &f, const Addresses &a, i32 n0, i32 n, u32 thread, i32 period = 0) {
#pragma unroll
    for (i32 k = 0; k < BN; k += THREADS) {
        i32 i = k + thread;
        if (i >= BN) continue;
        i32 column = period ? (n0 + i) % period : n0 + i;
#if EPILOGUE_BIAS
        to[i] = n0 + i < n ? to_f32(((const BIAS_T *)a.bias)[column]) * (IN_STEPS ? f.inverse : 1.f) : 0.f;
#endif
#if EPILOGUE_SCALE == 2
        to[BN + i] = n0 + i < n ? ((const float *)a.scales)[column] * f.factor : 0.f;
#endif
    }
}
