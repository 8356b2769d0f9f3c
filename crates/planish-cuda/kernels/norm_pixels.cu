// Group and instance normalization with channels innermost, in two launches: a thread keeps to V channels and goes
// over pixels, so that whole rows of channels are read, however small groups are.
//
// Set from outside:
//   X_T S_T B_T Y_T   storage of input, scale, bias and output
//   STAGE     1: sums of a part of the pixels for each group; 2: pixels from the sums
//   VECTORS   of V channels in a pixel
//   LANES     pixels that a block has at once; THREADS is VECTORS times LANES
//   GROUPS    of channels
//   SLICES    threads that share the sums of a group in stage 2
//   EPILOGUE… the program after (see epilogue.rs)
//
// Sums are taken of what is above or below the group's first element, so that a mean of many deviations costs
// no digits, and parts can simply be added up; their order is fixed.

#define CHANNELS (VECTORS * V)
#define THREADS (VECTORS * LANES)
#define EACH (CHANNELS / GROUPS)
// Pixels of a thread that are under way together: in stage 2 as many again are loaded while these are finished.
#define AT_ONCE (STAGE == 1 ? 8 : 4)

struct Sums { float off, squares; };

template <bool WIDE> PL_INLINE void make(const X_T* x, const S_T* scale, const B_T* bias, Y_T* y, Sums* parts, const NormPixelsArgs& a EPILOGUE_PARAMS) {
  const int n = blockIdx.y, vector = threadIdx.x % VECTORS, lane = threadIdx.x / VECTORS, c = vector * V;
  const int begin = (int)blockIdx.x * a.per_part, end = min(begin + a.per_part, a.n_pixels);
  const X_T* from = x + (i64)n * a.x_sample;
  float first[V];
#pragma unroll
  for (int j = 0; j < V; j++) first[j] = po_widen(from[(c + j) / EACH * EACH]);
  from += c;
#if STAGE == 1
  __shared__ float offs[LANES][CHANNELS], squared[LANES][CHANNELS];
  float off[V], squares[V];
#pragma unroll
  for (int j = 0; j < V; j++) off[j] = squares[j] = 0.0f;
  for (int p = begin + lane; p < end; p += AT_ONCE * LANES) {
    X_T v[AT_ONCE][V];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
      po_fetch<X_T, V, WIDE>(v[i], from + (i64)(p + i * LANES) * a.x_pixel, p + i * LANES < end, V);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
#pragma unroll
      for (int j = 0; j < V; j++) {
        const float d = p + i * LANES < end ? po_widen(v[i][j]) - first[j] : 0.0f;
        off[j] += d;
        squares[j] += d * d;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < V; j++) {
    offs[lane][c + j] = off[j];
    squared[lane][c + j] = squares[j];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < CHANNELS; i += THREADS) {
    float o = 0.0f, s = 0.0f;
#pragma unroll
    for (int l = 0; l < LANES; l++) {
      o += offs[l][i];
      s += squared[l][i];
    }
    offs[0][i] = o;
    squared[0][i] = s;
  }
  __syncthreads();
  for (int group = threadIdx.x; group < GROUPS; group += THREADS) {
    Sums sums = {0.0f, 0.0f};
#pragma unroll 4
    for (int i = 0; i < EACH; i++) {
      sums.off += offs[0][group * EACH + i];
      sums.squares += squared[0][group * EACH + i];
    }
    parts[((i64)n * a.n_parts + blockIdx.x) * GROUPS + group] = sums;
  }
#else
  // The first pixels come while the sums are added up.
  X_T v[2][AT_ONCE][V];
#pragma unroll
  for (int i = 0; i < AT_ONCE; i++)
    po_fetch<X_T, V, WIDE>(v[0][i], from + (i64)(begin + lane + i * LANES) * a.x_pixel, begin + lane + i * LANES < end, V);
  __shared__ Sums slices[SLICES][GROUPS];
  __shared__ float means[GROUPS], factors[GROUPS];
  for (int i = threadIdx.x; i < GROUPS * SLICES; i += THREADS) {
    const int group = i % GROUPS, slice = i / GROUPS;
    Sums sums = {0.0f, 0.0f};
#pragma unroll 8
    for (int p = slice; p < a.n_parts; p += SLICES) {
      const Sums part = parts[((i64)n * a.n_parts + p) * GROUPS + group];
      sums.off += part.off;
      sums.squares += part.squares;
    }
    slices[slice][group] = sums;
  }
  __syncthreads();
  for (int group = threadIdx.x; group < GROUPS; group += THREADS) {
    Sums sums = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < SLICES; i++) {
      sums.off += slices[i][group].off;
      sums.squares += slices[i][group].squares;
    }
    const float count = (float)EACH * (float)a.n_pixels;
    const float mean_off = sums.off / count;
    const float variance = fmaxf(sums.squares / count - mean_off * mean_off, 0.0f);
    means[group] = mean_off;
    factors[group] = 1.0f / sqrtf(variance + a.epsilon);
  }
  __syncthreads();
  float mean[V], factor[V], added[V];
#pragma unroll
  for (int j = 0; j < V; j++) {
    const int group = (c + j) / EACH;
    mean[j] = first[j] + means[group];
    factor[j] = factors[group] * po_widen(scale[c + j]);
    added[j] = po_widen(bias[c + j]);
  }
  Y_T* to = y + (i64)n * a.y_sample + c;
  const int stride = AT_ONCE * LANES;
  // Two rounds a turn, so that registers are known by constants.
  for (int turn = begin + lane; turn < end; turn += 2 * stride) {
#pragma unroll
    for (int round = 0; round < 2; round++) {
      const int p = turn + round * stride, next = p + stride;
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++)
        po_fetch<X_T, V, WIDE>(v[1 - round][i], from + (i64)(next + i * LANES) * a.x_pixel, next + i * LANES < end, V);
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        const int pixel = p + i * LANES;
        if (pixel >= end) break;
        float result[V];
#pragma unroll
        for (int j = 0; j < V; j++) result[j] = (po_widen(v[round][i][j]) - mean[j]) * factor[j] + added[j];
        epilogue(result, a.epilogue, n, 0, 0, pixel, c, V EPILOGUE_ARGS);
        po_store<Y_T, V>(to + (i64)pixel * a.y_pixel, result);
      }
    }
  }
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
norm_pixels(const X_T* x, const S_T* scale, const B_T* bias, Y_T* y, Sums* parts, const NormPixelsArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  const bool wide = (a.x_sample | a.x_pixel) % V == 0 && (u64)x % (V * sizeof(X_T)) == 0;
  if (wide) make<true>(x, scale, bias, y, parts, a EPILOGUE_ARGS);
  else make<false>(x, scale, bias, y, parts, a EPILOGUE_ARGS);
}
