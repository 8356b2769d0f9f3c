// Attention on tensor cores whose warps divide the keys among themselves: a warp has 16 queries and every GROUPSth
// step of keys, with scores and sums in its registers, and meets the other groups only at the end. Few queries and
// heads so keep many warps busy, and no warp waits for keys that it does not need.
//
// Set from outside (attention.cuh stands in front):
//   T          f16 or bf16: storage of queries, keys, values and output
//   D DV       features of queries and keys, and of values, rounded up to 16
//   TILES      of 16 queries in a block, a power of two
//   GROUPS     of warps that share the keys of a block; THREADS is 32 TILES GROUPS
//   KEYS       of a step of a group: 16, 32 or 64
//   WIDE       1: operands' rows lie in whole chunks of 16 bytes; 0: anywhere
//   SPLIT      0: a block has all keys; 1: a part of them, and leaves its sums in `parts`; more: a part, and the
//              SPLIT blocks of a cluster join what they found

#define STAGES 2
#define PITCH (D + 8)
#define PITCH_V (DV + 8)
#define ROWS (16 * TILES)
#define MEMBERS (32 * TILES)
#define STAGE (KEYS * (PITCH + PITCH_V))
// Queries of up to 128 features stay in registers; more would leave no room for the sums.
#define HELD (D <= 128)

extern "C" __global__ void __launch_bounds__(THREADS)
attention(const T* q, const T* k, const T* v, const MASK_T* mask, Y_T* y, float* parts, const AttentionArgs a) {
  PO_DYNAMIC
  T* queries_at = (T*)po_dynamic;
  const int n_parts = a.n_parts;
  const int block = blockIdx.x / n_parts, split = blockIdx.x % n_parts;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int n_queries = a.n_queries, n_keys = a.n_keys;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int tile = warp % TILES, group = warp / TILES, member = threadIdx.x % MEMBERS;
  const int first = block * ROWS;
  const Scorer scorer = at_head(a, batch, head, q, k, v, y, mask);
  const int row = first + tile * 16 + lane / 4;  // and row + 8
  T* own = queries_at + ROWS * PITCH + group * STAGES * STAGE;

  const int begin = split * a.part_keys;
  int end = min(n_keys, begin + a.part_keys);
#if CAUSAL
  end = min(end, a.n_past + first + ROWS);
#endif
  let_next_begin();
  wait_for_inputs();
  bring<D, ROWS, PITCH>(queries_at, q + (i64)first * a.queries.step, a.queries.step, n_queries - first, a.size);
  int fetched = begin + group * KEYS;
  if (fetched < end) {
    bring<D, KEYS, PITCH, MEMBERS>(own, k + (i64)fetched * a.keys.step, a.keys.step, n_keys - fetched, a.size, member);
    bring<DV, KEYS, PITCH_V, MEMBERS>(own + KEYS * PITCH, v + (i64)fetched * a.values.step, a.values.step, n_keys - fetched, a.value_size, member);
  } else {
    copy_async_commit();
    copy_async_commit();
  }
  copy_async_wait<2>();
  __syncthreads();
  const T* query_at = queries_at + (tile * 16 + lane % 16) * PITCH + lane / 16 * 8;
#if HELD
  u32 queries[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++) load_matrix4(queries[i], shared_address(query_at + i * 16));
#endif

  Running<DV> running;
  running.clear();

  int stage = 0;
#pragma unroll 1
  for (int start = begin + group * KEYS; start < end; start += GROUPS * KEYS) {
    copy_async_wait<0>();
    group_sync<TILES>(group);
    // Every warp of the group is through with the other stage.
    const T* keys = own + stage * STAGE;
    const T* values = keys + KEYS * PITCH;
    stage ^= 1;
    fetched = start + GROUPS * KEYS;
    if (fetched < end) {
      T* to = own + stage * STAGE;
      bring<D, KEYS, PITCH, MEMBERS>(to, k + (i64)fetched * a.keys.step, a.keys.step, n_keys - fetched, a.size, member);
      bring<DV, KEYS, PITCH_V, MEMBERS>(to + KEYS * PITCH, v + (i64)fetched * a.values.step, a.values.step, n_keys - fetched, a.value_size, member);
    }

    float s[KEYS / 8][4];
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) { s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f; }
    // Fragments are loaded one step ahead of the products that take them.
    u32 b[2][KEYS / 16][4];
    const T* key_at = keys + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) load_matrix4(b[0][n], shared_address(key_at + n * 16 * PITCH));
#if !HELD
    u32 from[2][4];
    load_matrix4(from[0], shared_address(query_at));
#endif
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      if (i + 1 < D / 16) {
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++)
          load_matrix4(b[(i + 1) % 2][n], shared_address(key_at + n * 16 * PITCH + (i + 1) * 16));
#if !HELD
        load_matrix4(from[(i + 1) % 2], shared_address(query_at + (i + 1) * 16));
#endif
      }
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
#if HELD
        multiply<T>(s[2 * n], queries[i], b[i % 2][n][0], b[i % 2][n][1]);
        multiply<T>(s[2 * n + 1], queries[i], b[i % 2][n][2], b[i % 2][n][3]);
#else
        multiply<T>(s[2 * n], from[i % 2], b[i % 2][n][0], b[i % 2][n][1]);
        multiply<T>(s[2 * n + 1], from[i % 2], b[i % 2][n][2], b[i % 2][n][3]);
#endif
      }
    }

#if !HAS_MASK && !HAS_CAP && !CAUSAL
    const float scale = scorer.scale * LOG2_E;
    const int left = n_keys - start - lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) s[i][e] *= scale;
    }
    if (start + KEYS > n_keys) {
#pragma unroll
      for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (i * 8 + e % 2 >= left) s[i][e] = HIDDEN;
      }
    }
#else
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[i][e] = scorer.of(s[i][e], row + e / 2 * 8, start + i * 8 + lane % 4 * 2 + e % 2);
    }
#endif
    running.weigh(s, [](float v) { return fast_exp2(v); });
    running.add<PITCH_V>(s, values, lane);
  }
  running.close();

  // The groups' sums meet where keys and values were. Threads take V neighbouring features of a row each.
  copy_async_wait<0>();
  __syncthreads();
  float* met = (float*)po_dynamic;
  float* tops = met + GROUPS * ROWS * PITCH_V;
#if SPLIT > 1
  float4* joined = (float4*)(tops + 2 * GROUPS * ROWS);
#endif
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int at = group * ROWS + tile * 16 + lane / 4 + 8 * h;
#pragma unroll
    for (int i = 0; i < DV / 8; i++) {
      float* to = met + at * PITCH_V + i * 8 + lane % 4 * 2;
      to[0] = running.sums[i][2 * h];
      to[1] = running.sums[i][2 * h + 1];
    }
    if (lane % 4 == 0) {
      tops[2 * at] = running.most[h];
      tops[2 * at + 1] = running.total[h];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * (DV / 8); i += THREADS) {
    const int mine = i / (DV / 8), col = i % (DV / 8) * 8;
    if (first + mine >= n_queries) break;
    float greatest = HIDDEN;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) greatest = fmaxf(greatest, tops[2 * (g * ROWS + mine)]);
    const float base = base_of(greatest);
    float sum[8], all = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] = 0.0f;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const float weight = fast_exp2(tops[2 * (g * ROWS + mine)] - base);
      all += weight * tops[2 * (g * ROWS + mine) + 1];
      const float4* part = (const float4*)(met + (g * ROWS + mine) * PITCH_V + col);
      const float4 lo = part[0], hi = part[1];
      sum[0] += weight * lo.x; sum[1] += weight * lo.y; sum[2] += weight * lo.z; sum[3] += weight * lo.w;
      sum[4] += weight * hi.x; sum[5] += weight * hi.y; sum[6] += weight * hi.z; sum[7] += weight * hi.w;
    }
#if SPLIT == 1
    // After the sums of all parts: what is the greatest score of a row, and its total.
    const i64 n_rows = (i64)gridDim.z * a.n_heads * n_queries;
    const i64 at = (i64)split * n_rows + ((i64)batch * a.n_heads + head) * n_queries + first + mine;
    float4* to = (float4*)(parts + at * DV + col);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    if (col == 0) {
      float* beside = parts + n_rows * n_parts * DV + at * 2;
      beside[0] = greatest;
      beside[1] = all;
    }
#elif SPLIT > 1
    // In the place of the first group's, which this thread alone has read.
    float4* to = (float4*)(met + mine * PITCH_V + col);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    if (col == 0) joined[mine] = make_float4(greatest, all, 0.0f, 0.0f);
#else
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] /= all;
    store_eight(y + (i64)(first + mine) * a.out.step + col, sum, a.value_size - col, a);
#endif
  }
#if SPLIT > 1
  // Each block of the cluster finishes a share of the rows.
  cluster_leave();
  cluster_left();
  const int share = ROWS * (DV / 8) / SPLIT;
  for (int i = split * share + threadIdx.x; i < (split + 1) * share; i += THREADS) {
    const int mine = i / (DV / 8), col = i % (DV / 8) * 8;
    if (first + mine >= n_queries) break;
    float greatest = HIDDEN;
    float4 tops_of[SPLIT];
#pragma unroll
    for (int r = 0; r < SPLIT; r++) {
      tops_of[r] = load_cluster16(cluster_address(shared_address(joined + mine), r));
      greatest = fmaxf(greatest, tops_of[r].x);
    }
    const float base = base_of(greatest);
    float sum[8], all = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] = 0.0f;
#pragma unroll
    for (int r = 0; r < SPLIT; r++) {
      const float weight = fast_exp2(tops_of[r].x - base);
      all += weight * tops_of[r].y;
      const u32 at = cluster_address(shared_address(met + mine * PITCH_V + col), r);
      const float4 lo = load_cluster16(at), hi = load_cluster16(at + 16);
      sum[0] += weight * lo.x; sum[1] += weight * lo.y; sum[2] += weight * lo.z; sum[3] += weight * lo.w;
      sum[4] += weight * hi.x; sum[5] += weight * hi.y; sum[6] += weight * hi.z; sum[7] += weight * hi.w;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] /= all;
    store_eight(y + (i64)(first + mine) * a.out.step + col, sum, a.value_size - col, a);
  }
  // Others may still read what this block found.
  cluster_leave();
  cluster_left();
#endif
}
