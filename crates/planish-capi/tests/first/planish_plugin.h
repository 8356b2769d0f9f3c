/* Operators of your own for Planish, in C: fill a structure, export it with PLANISH_PLUGIN, build a shared library.
 *
 *   cc -O3 -shared -fPIC -I PATH/TO/include my_op.c -o libmy_op.so
 *   planish plugin check libmy_op.so
 *   planish build model.onnx --plugin libmy_op.so
 *
 * docs/plugins.md tells what a declaration says. Every structure begins with its size: later versions add fields at the
 * end, and a library that was built with this header goes on working with them.
 *
 * Functions may be called from any thread, several at once, on different states. They must not throw and must not keep
 * pointers to what they are given. A function returns 0, or another number after it has said why by `fail`. */

#ifndef PLANISH_PLUGIN_H
#define PLANISH_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface. */
#define PLANISH_PLUGIN_ABI 1u

/* Element types, with ONNX's numbers. */
enum {
  PLANISH_PLUGIN_F32 = 1,
  PLANISH_PLUGIN_U8 = 2,
  PLANISH_PLUGIN_I8 = 3,
  PLANISH_PLUGIN_U16 = 4,
  PLANISH_PLUGIN_I16 = 5,
  PLANISH_PLUGIN_I32 = 6,
  PLANISH_PLUGIN_I64 = 7,
  PLANISH_PLUGIN_BOOL = 9,
  PLANISH_PLUGIN_F16 = 10,
  PLANISH_PLUGIN_F64 = 11,
  PLANISH_PLUGIN_U32 = 12,
  PLANISH_PLUGIN_U64 = 13,
  PLANISH_PLUGIN_BF16 = 16
};

/* Where a problem is computed. */
enum { PLANISH_PLUGIN_CPU = 0, PLANISH_PLUGIN_CUDA = 1 };

/* How a value lies in memory; strides are in elements. */
typedef struct planish_plugin_operand {
  int32_t dtype;
  int32_t rank; /* -1 where an optional input is left out */
  const int64_t *dims;
  const int64_t *strides;
} planish_plugin_operand;

/* What is to be computed: the operator at known sizes. */
typedef struct planish_plugin_problem planish_plugin_problem;
struct planish_plugin_problem {
  size_t size;
  int32_t place;   /* PLANISH_PLUGIN_CPU or PLANISH_PLUGIN_CUDA */
  int32_t threads; /* the most threads that will run it; slots are below it */
  uint32_t n_inputs;
  uint32_t n_outputs;
  const planish_plugin_operand *inputs;
  const planish_plugin_operand *outputs;
  const char *tactic; /* one of the declaration's `tactics:`, else "default" */
  /* A size, a number of the tactic or an integer attribute by its name in the declaration. */
  int64_t (*number)(const planish_plugin_problem *problem, const char *name, int64_t otherwise);
  double (*float_attribute)(const planish_plugin_problem *problem, const char *name, double otherwise);
  /* NULL where there is none; valid as long as the problem. */
  const char *(*string_attribute)(const planish_plugin_problem *problem, const char *name);
  /* Says why a function fails; returns 1, so that `return problem->fail(problem, "why");` does both. */
  int (*fail)(const planish_plugin_problem *problem, const char *why);
  const void *host; /* Planish's own */
};

/* One run. */
typedef struct planish_plugin_call planish_plugin_call;
struct planish_plugin_call {
  size_t size;
  const planish_plugin_problem *problem;
  const void *const *inputs; /* NULL where an optional input is left out; on CUDA, addresses on the device */
  void *const *outputs;
  void *workspace; /* aligned to 64 bytes, with anything in it */
  size_t workspace_bytes;
  void *stream; /* for runs on CUDA; NULL today: kernels for GPUs come as text, see `cuda` below */
  /* Runs `task` for each number below `n_tasks`, in any order, on the threads of this run. What a task computes must not
   * depend on how many threads there are. `slot` is below `threads`; no two tasks that run at once share one. */
  void (*parallel_for)(const planish_plugin_call *call, size_t n_tasks,
                       void (*task)(void *user, size_t idx, size_t slot), void *user);
  /* NULL, unless the declaration says `epilogue: yes` and pointwise operators follow: then each element of the first
   * output is handed on once, after it was written: elements first to first + n - 1 in row-major order. */
  void (*finish)(const planish_plugin_call *call, size_t first, size_t n, size_t slot);
  const void *host; /* Planish's own */
};

/* An operator. What is not needed is NULL. */
typedef struct planish_plugin {
  size_t size;  /* sizeof(planish_plugin) */
  uint32_t abi; /* PLANISH_PLUGIN_ABI */
  uint32_t reserved;
  const char *declaration;
  /* Settles a problem: a state of its own, and how many bytes of workspace a run needs. Fails where it cannot. */
  int (*prepare)(const planish_plugin_problem *problem, void **state, size_t *workspace_bytes);
  int (*run)(void *state, const planish_plugin_call *call);
  void (*release)(void *state);
  /* The slow, obvious way on dense operands, where the declaration has no `reference:`. */
  int (*reference)(const planish_plugin_call *call);
  /* The text of a .cu plugin for the same operator, with its declaration in its first comment. */
  const char *cuda;
} planish_plugin;

#if defined(__GNUC__)
#define PLANISH_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define PLANISH_PLUGIN_EXPORT
#endif

#ifdef __cplusplus
#define PLANISH_PLUGIN_C extern "C"
#else
#define PLANISH_PLUGIN_C
#endif

/* Exports operators: PLANISH_PLUGIN(&first, &second). Planish finds them in every library that the process has loaded. */
#define PLANISH_PLUGIN(...)                                                                   \
  PLANISH_PLUGIN_C PLANISH_PLUGIN_EXPORT const planish_plugin *planish_plugin_get(size_t idx); \
  PLANISH_PLUGIN_C PLANISH_PLUGIN_EXPORT const planish_plugin *planish_plugin_get(size_t idx) { \
    static const planish_plugin *const all[] = {__VA_ARGS__};                                  \
    return idx < sizeof all / sizeof *all ? all[idx] : NULL;                                   \
  }

#ifdef __cplusplus
}
#endif

#endif
