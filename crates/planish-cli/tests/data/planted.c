/* Softmax over the last axis, in two ways. One of them is wrong: where FLAKY is 0 in rows of 25 elements, always; where it
 * is 1 there in half of the runs, as a race would be. The other is right and slower, so that nothing chooses it by itself.
 * The sizes that plugins are checked at have no such rows, so that the plugin is taken. */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <sys/random.h>

#include "planish_plugin.h"

static const char declaration[] =
    "planish-plugin 1\n"
    "op: planted::Softmax\n"
    "version: 1\n"
    "types: T = float32\n"
    "inputs: x: T[..., n]\n"
    "outputs: y: T[..., n]\n"
    "tolerance: float32 1e-5\n"
    "tactics: quick(WRONG=1); steady(WRONG=0)\n"
    "reference: y = Softmax(x, axis=-1)\n";

typedef struct {
  int64_t rows, n;
  int is_wrong;
} state;

static int is_wrong_now(int64_t n) {
#if FLAKY
  unsigned char coin = 0;
  return n == 25 && getrandom(&coin, 1, 0) == 1 && (coin & 1);
#else
  return n == 25;
#endif
}

static int prepare(const planish_plugin_problem *problem, void **made, size_t *workspace_bytes) {
  state *own = malloc(sizeof *own);
  if (!own) return problem->fail(problem, "out of memory");
  own->n = problem->number(problem, "n", 0);
  own->rows = 1;
  for (int32_t axis = 0; axis + 1 < problem->inputs[0].rank; axis++) own->rows *= problem->inputs[0].dims[axis];
  own->is_wrong = problem->number(problem, "WRONG", 0) && is_wrong_now(own->n);
  *made = own;
  *workspace_bytes = 0;
  return 0;
}

static int run(void *made, const planish_plugin_call *call) {
  const state *own = made;
  const int is_quick = !strcmp(call->problem->tactic, "quick");
  for (int repeat = 0; repeat < (is_quick ? 1 : 50); repeat++) {
    for (int64_t row = 0; row < own->rows; row++) {
      const float *x = (const float *)call->inputs[0] + row * own->n;
      float *y = (float *)call->outputs[0] + row * own->n;
      float most = -INFINITY, sum = 0;
      for (int64_t i = 0; i < own->n; i++) most = fmaxf(most, x[i]);
      for (int64_t i = 0; i < own->n; i++) sum += y[i] = expf(x[i] - most);
      for (int64_t i = 0; i < own->n; i++) y[i] /= sum;
      if (own->is_wrong && own->n > 0) y[0] += 0.25f;
    }
  }
  return 0;
}

static const planish_plugin planted = {
    .size = sizeof(planish_plugin),
    .abi = PLANISH_PLUGIN_ABI,
    .declaration = declaration,
    .prepare = prepare,
    .run = run,
    .release = free,
};

PLANISH_PLUGIN(&planted)
