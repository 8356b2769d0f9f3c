// Transposed convolution on tensor cores, channels innermost, one group, taps side by side. Outputs whose place
// has the same rest by the strides (a phase) see the same taps: each phase is a product of its own,
//   out[q · stride + rest - pad][·] = sum over t of x[q - t][·] · W[rest + t · stride],
// with rows for its outputs and k running over its taps and the input channels.
//
// Set from outside:
//   T              f16 or bf16: storage of image and weights;  Y_T: of the output
//   JOINED         1: windows lie side by side and fill the output, so that each pixel of the input makes all
//                  outputs of its window: one product whose columns are those of all phases; 0: as above
//   EPILOGUE…        the program after, eight channels at once (see epilogue.rs)
//
// Weights are packed as tap, output channel, input channel; channels of both are multiples of 8.

#define BM 64
#define BN 64
#define BK 32
#define STAGES 3
#define PITCH (BK + 8)
#define STAGE (2 * 64 * PITCH)
#define LD (BN + 4)

struct Phase {
  int rest[3], first[3], count[3], taps[3];
  PL_INLINE void start(const ConvTransposeMmaArgs& a, int phase) {
#pragma unroll
    for (int i = 2; i >= 0; i--) {
      const WindowAxis& p = a.windows[i];
      const int r = phase % p.stride;
      phase /= p.stride;
      rest[i] = r;
      first[i] = p.pad_begin > r ? (p.pad_begin - r + p.stride - 1) / p.stride : 0;
      const int end = (p.input + p.pad_begin - r + p.stride - 1) / p.stride;
      count[i] = max(0, end - first[i]);
      taps[i] = r < p.kernel ? (p.kernel - r + p.stride - 1) / p.stride : 0;
    }
  }
  // Every pixel of the input, with one tap.
  PL_INLINE void whole(const ConvTransposeMmaArgs& a) {
#pragma unroll
    for (int i = 0; i < 3; i++) {
      rest[i] = first[i] = 0;
      count[i] = a.windows[i].output;
      taps[i] = 1;
    }
  }
};

extern "C" __global__ void __launch_bounds__(128)
convtranspose_mma(const T* x, const T* w, Y_T* y, const ConvTransposeMmaArgs a EPILOGUE_PARAMS) {
  let_next_begin();
  wait_for_inputs();
  __shared__ uint4 chunks[STAGES * STAGE / 8];
  T* tiles = (T*)chunks;
  Phase phase;
#if JOINED
  phase.whole(a);
#else
  phase.start(a, blockIdx.z);
#endif
  const int rows = a.samples * phase.count[0] * phase.count[1] * phase.count[2];
  const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;
  if (m0 >= rows) return;
  const int channels = a.inputs;
  const int columns = JOINED ? a.outputs * a.windows[0].stride * a.windows[1].stride * a.windows[2].stride : a.outputs;
  const int t = threadIdx.x, warp = t >> 5, lane = t & 31;

  // Two rows of the image and two of the weights for each thread, one chunk of 16 bytes of each.
  const int chunk = t % 4;
  int q[2][4];
  bool there[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int m = m0 + t / 4 + 32 * i;
    there[i] = m < rows;
    m = there[i] ? m : 0;
    q[i][3] = m % phase.count[2] + phase.first[2];
    m /= phase.count[2];
    q[i][2] = m % phase.count[1] + phase.first[1];
    m /= phase.count[1];
    q[i][1] = m % phase.count[0] + phase.first[0];
    q[i][0] = m / phase.count[0];
  }
  const int per_tap = (channels + BK - 1) / BK;
  const int n_steps = phase.taps[0] * phase.taps[1] * phase.taps[2] * per_tap;

  auto bring = [&](int step, int stage) {
    const int tap = step / per_tap, c = (step - tap * per_tap) * BK + chunk * 8;
    const int tw = tap % phase.taps[2], rest = tap / phase.taps[2];
    const int th = rest % phase.taps[1], td = rest / phase.taps[1];
    T* at = tiles + stage * STAGE;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = t / 4 + 32 * i;
      const int d = q[i][1] - td, h = q[i][2] - th, u = q[i][3] - tw;
      const bool ok = there[i] && c < channels && d >= 0 && d < a.windows[0].output && h >= 0 && h < a.windows[1].output && u >= 0 && u < a.windows[2].output;
      const T* from = x + ((i64)q[i][0] * a.x.n + (i64)d * a.x.d + (i64)h * a.x.h + (i64)u * a.x.w + c);
      copy_async16(shared_address(at + row * PITCH + chunk * 8), ok ? from : x, ok);
    }
    const int k = ((phase.rest[0] + td * a.windows[0].stride) * a.windows[1].kernel + phase.rest[1] + th * a.windows[1].stride) * a.windows[2].kernel + phase.rest[2] + tw * a.windows[2].stride;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = t / 4 + 32 * i;
      const bool ok = n0 + row < columns && c < channels;
      const T* from = w + ((i64)k * columns + n0 + row) * channels + c;
      copy_async16(shared_address(at + (64 + row) * PITCH + chunk * 8), ok ? from : w, ok);
    }
  };

  float acc[2][4][4];
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) { acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.0f; }
  }
  const int wm = warp / 2 * 32, wn = warp % 2 * 32;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < n_steps) bring(s, s);
    copy_async_commit();
  }
  for (int step = 0; step < n_steps; step++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    const int ahead = step + STAGES - 1;
    if (ahead < n_steps) bring(ahead, ahead % STAGES);
    copy_async_commit();
    const T* at = tiles + step % STAGES * STAGE;
#pragma unroll
    for (int kk = 0; kk < BK / 16; kk++) {
      u32 m[2][4], n[2][4];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        load_matrix4(m[i], shared_address(at + (wm + i * 16 + lane % 16) * PITCH + kk * 16 + lane / 16 * 8));
        load_matrix4(n[i], shared_address(at + (64 + wn + i * 16 + lane / 16 * 8 + lane % 8) * PITCH + kk * 16 + lane / 8 % 2 * 8));
      }
#pragma unroll
      for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          multiply<T>(acc[i][2 * j], m[i], n[j][0], n[j][1]);
          multiply<T>(acc[i][2 * j + 1], m[i], n[j][2], n[j][3]);
        }
      }
    }
  }
  copy_async_wait<0>();
  __syncthreads();
  // Accumulators go through shared memory, so that a thread has eight neighbouring channels of a pixel.
  float* staged = (float*)tiles;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        staged[(wm + i * 16 + lane / 4 + e / 2 * 8) * LD + wn + j * 8 + lane % 4 * 2 + e % 2] = acc[i][j][e];
      }
    }
  }
  __syncthreads();
  for (int i = t; i < BM * (BN / 8); i += 128) {
    const int row = i / (BN / 8), col = i % (BN / 8) * 8;
    int m = m0 + row;
    if (m >= rows || n0 + col >= columns) continue;
    const int qw = m % phase.count[2] + phase.first[2];
    m /= phase.count[2];
    const int qh = m % phase.count[1] + phase.first[1];
    m /= phase.count[1];
    const int qd = m % phase.count[0] + phase.first[0];
    const int n = m / phase.count[0];
#if JOINED
    // Columns are taps with their output channels, which are whole chunks of eight.
    int tap = (n0 + col) / a.outputs;
    const int channel = n0 + col - tap * a.outputs;
    const int ow = qw * a.windows[2].stride + tap % a.windows[2].stride;
    tap /= a.windows[2].stride;
    const int oh = qh * a.windows[1].stride + tap % a.windows[1].stride, od = qd * a.windows[0].stride + tap / a.windows[1].stride;
#else
    const int channel = n0 + col;
    const int od = qd * a.windows[0].stride + phase.rest[0] - a.windows[0].pad_begin;
    const int oh = qh * a.windows[1].stride + phase.rest[1] - a.windows[1].pad_begin;
    const int ow = qw * a.windows[2].stride + phase.rest[2] - a.windows[2].pad_begin;
#endif
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = staged[row * LD + col + j];
    const int left = a.outputs - channel;
    epilogue(v, a.epilogue, n, od, oh, ow, channel, left EPILOGUE_ARGS);
    po_store_part<Y_T, 8>(y + ((i64)n * a.y.n + (i64)od * a.y.d + (i64)oh * a.y.h + (i64)ow * a.y.w + channel), Stored<Y_T, 8>(v).v, left);
  }
}
