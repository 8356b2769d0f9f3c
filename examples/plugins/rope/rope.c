/* Rotary position embedding as a plugin for the CPU: FP32 and FP16, any sizes.
 *
 *   cc -O3 -march=native -shared -fPIC -I crates/planish-capi/include examples/plugins/rope/rope.c -o librope.so
 *   planish plugin check librope.so
 *
 * rope.cu is the same operator for NVIDIA GPUs; give both files to build for both. */

#include <stdlib.h>

#include "planish_plugin.h"

static const char declaration[] =
    "planish-plugin 1\n"
    "op: example.rope::Rope\n"
    "version: 1\n"
    "about: rotary position embedding, halves of each vector turned against each other\n"
    "types: T = float32 | float16\n"
    "inputs: x: T[b, h, s, d], cos: T[b, s, d / 2], sin: T[b, s, d / 2]\n"
    "outputs: y: T[b, h, s, d]\n"
    "where: d % 2 == 0\n"
    "in-place: y = x\n"
    "epilogue: yes\n"
    /* Two products and a sum, each rounded once, of numbers up to 4; float16 is rounded once more. */
    "tolerance: float32 1e-6, float16 1e-3\n"
    "sizes: b=2 h=3 s=5 d=64; b=1 h=8 s=17 d=128\n"
    "reference: y = RotaryEmbedding(x, cos, sin)\n";

/* Vectors of one task: some 10 microseconds. */
enum { TASK_ELEMENTS = 1 << 15 };

typedef struct {
  int64_t heads, steps, pairs, rows, rows_of_task;
  int is_half;
} state;

static int prepare(const planish_plugin_problem *problem, void **made, size_t *workspace_bytes) {
  state *own = malloc(sizeof *own);
  if (!own) return problem->fail(problem, "out of memory");
  own->heads = problem->number(problem, "h", 0);
  own->steps = problem->number(problem, "s", 0);
  own->pairs = problem->number(problem, "d", 0) / 2;
  own->rows = problem->number(problem, "b", 0) * own->heads * own->steps;
  own->rows_of_task = own->pairs ? TASK_ELEMENTS / (2 * own->pairs) : 1;
  if (own->rows_of_task < 1) own->rows_of_task = 1;
  own->is_half = problem->inputs[0].dtype == PLANISH_PLUGIN_F16;
  *made = own;
  *workspace_bytes = 0;
  return 0;
}

/* `y` may be `x`, and nothing else lies over anything: no step of the loop reads what another wrote, which compilers do not
 * see by themselves. */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* A pair turned: both are read before either is written. */
#define TURN(TYPE, WIDE)                                                                             \
  static void turn_##TYPE(const TYPE *x, const TYPE *cosine, const TYPE *sine, TYPE *y, int64_t n) { \
    INDEPENDENT for (int64_t i = 0; i < n; i++) {                                                    \
      const WIDE a = x[i], b = x[n + i], c = cosine[i], s = sine[i];                                 \
      y[i] = (TYPE)(c * a - s * b);                                                                  \
      y[n + i] = (TYPE)(s * a + c * b);                                                              \
    }                                                                                                \
  }
TURN(float, float)
TURN(_Float16, float)

typedef struct {
  const state *own;
  const planish_plugin_call *call;
} work;

static void rows(void *user, size_t idx, size_t slot) {
  const work *at = user;
  const state *own = at->own;
  const planish_plugin_call *call = at->call;
  const int64_t first = (int64_t)idx * own->rows_of_task, size = 2 * own->pairs;
  const int64_t end = first + own->rows_of_task < own->rows ? first + own->rows_of_task : own->rows;
  /* Rows are batch, head, step; the tables have no heads. Counted, not divided: divisions would take as long as the row. */
  int64_t step = first % own->steps, head = first / own->steps % own->heads, batch = first / own->steps / own->heads;
  for (int64_t row = first; row < end; row++) {
    const int64_t angles = (batch * own->steps + step) * own->pairs;
    if (++step == own->steps) {
      step = 0;
      if (++head == own->heads) head = 0, batch++;
    }
    if (own->is_half)
      turn__Float16((const _Float16 *)call->inputs[0] + row * size, (const _Float16 *)call->inputs[1] + angles,
                    (const _Float16 *)call->inputs[2] + angles, (_Float16 *)call->outputs[0] + row * size, own->pairs);
    else
      turn_float((const float *)call->inputs[0] + row * size, (const float *)call->inputs[1] + angles,
                 (const float *)call->inputs[2] + angles, (float *)call->outputs[0] + row * size, own->pairs);
  }
  /* What follows goes on while the rows are in cache. */
  if (call->finish && end > first) call->finish(call, (size_t)(first * size), (size_t)((end - first) * size), slot);
}

static int run(void *made, const planish_plugin_call *call) {
  const state *own = made;
  work at = {own, call};
  call->parallel_for(call, (size_t)((own->rows + own->rows_of_task - 1) / own->rows_of_task), rows, &at);
  return 0;
}

static const planish_plugin rope = {
    .size = sizeof(planish_plugin),
    .abi = PLANISH_PLUGIN_ABI,
    .declaration = declaration,
    .prepare = prepare,
    .run = run,
    .release = free,
};

PLANISH_PLUGIN(&rope)
