/* Planish in C: trained models to tuned and checked plans, and plans run fast and safely. docs/c.md has a first program.
 *
 * Written by cbindgen from crates/planish-capi; change that.
 *
 * Errors: functions give a PlanishStatus, planish_error() the words for the calling thread's last one that was not OK.
 * Whatever happens, nothing is left half done: objects can be used again, files are whole. The library prints nothing, never
 * ends the process, and no exception or panic leaves it. Callbacks must not throw either.
 *
 * Threads: models, calibrations, plans and engines do not change; any number of threads may use one at once. Builders and
 * contexts are for one thread at a time, whichever it is. Freeing is for when nobody uses an object any more. What is made
 * of an object lives on without it.
 *
 * Structures: the first field of each is its size. Set it to sizeof before a call, and all else that is not needed to zero:
 *
 *     PlanishContextOptions options = {.size = sizeof options};      (in C++: options{}; options.size = sizeof options;)
 *
 * so that programs and libraries of different versions understand each other.
 *
 * Texts are UTF-8 and end in a NUL. Sizes of tensors are int64_t; tensors are packed, the last size varies fastest.
 */


#ifndef PLANISH_H
#define PLANISH_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this interface. Programs that were compiled with an older header of the same number run with every newer
 * library.
 */
#define PLANISH_ABI_VERSION 1

/**
 * How a call ended: what a program decides by. `planish_error` has the words.
 */
enum PlanishStatus
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * All is well.
     */
    PLANISH_STATUS_OK = 0,
    /**
     * The model is not usable.
     */
    PLANISH_STATUS_BAD_MODEL = 1,
    /**
     * A plan, a timing cache or a calibration does not follow its format, or is damaged.
     */
    PLANISH_STATUS_BAD_FILE = 2,
    /**
     * A file cannot be read or written.
     */
    PLANISH_STATUS_IO = 3,
    /**
     * The disk is full, or a limit on files is reached.
     */
    PLANISH_STATUS_NO_ROOM = 4,
    /**
     * An argument or an option does not say what it may, or contradicts another one.
     */
    PLANISH_STATUS_BAD_OPTION = 5,
    /**
     * The model asks for what nothing here can compute.
     */
    PLANISH_STATUS_UNSUPPORTED = 6,
    /**
     * A strict build refuses what was found.
     */
    PLANISH_STATUS_REFUSED = 7,
    /**
     * An input is missing or unknown.
     */
    PLANISH_STATUS_WRONG_INPUTS = 8,
    /**
     * An input has another element type than the model takes.
     */
    PLANISH_STATUS_WRONG_TYPE = 9,
    /**
     * Sizes that the model or its profiles do not accept, or memory that is too small for them.
     */
    PLANISH_STATUS_WRONG_SHAPE = 10,
    /**
     * The inputs' values are outside of what an operator defines.
     */
    PLANISH_STATUS_BAD_VALUES = 11,
    /**
     * The plan was built for another machine or by another version.
     */
    PLANISH_STATUS_NEEDS_REBUILD = 12,
    /**
     * The plan is not signed by a key that is trusted.
     */
    PLANISH_STATUS_UNTRUSTED = 13,
    /**
     * There is not enough memory.
     */
    PLANISH_STATUS_OUT_OF_MEMORY = 14,
    /**
     * A run would go beyond the engine's limits.
     */
    PLANISH_STATUS_LIMIT = 15,
    /**
     * A callback asked to stop.
     */
    PLANISH_STATUS_CANCELLED = 16,
    /**
     * This machine lacks what is needed: a GPU, a driver, a library.
     */
    PLANISH_STATUS_LACKING = 17,
    /**
     * The device failed in a way that ends every use of it in this process.
     */
    PLANISH_STATUS_DEVICE_LOST = 18,
    /**
     * The self-check of a build found a wrong answer that could not be repaired.
     */
    PLANISH_STATUS_CHECK_FAILED = 19,
    /**
     * A mistake of ours.
     */
    PLANISH_STATUS_FAILED = 20,
    /**
     * The context is in use by another thread.
     */
    PLANISH_STATUS_BUSY = 21,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum PlanishStatus PlanishStatus;
#else
typedef int32_t PlanishStatus;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How grave a message is.
 */
enum PlanishSeverity
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    PLANISH_SEVERITY_INTERNAL_ERROR = 0,
    PLANISH_SEVERITY_ERROR = 1,
    PLANISH_SEVERITY_WARNING = 2,
    PLANISH_SEVERITY_INFO = 3,
    PLANISH_SEVERITY_VERBOSE = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum PlanishSeverity PlanishSeverity;
#else
typedef int32_t PlanishSeverity;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Element types, with the numbers that ONNX gives them. Those below a byte are packed, the first element in the low bits.
 */
enum PlanishType
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Not a tensor: a sequence, or an optional value.
     */
    PLANISH_TYPE_NONE = 0,
    PLANISH_TYPE_FLOAT32 = 1,
    PLANISH_TYPE_UINT8 = 2,
    PLANISH_TYPE_INT8 = 3,
    PLANISH_TYPE_UINT16 = 4,
    PLANISH_TYPE_INT16 = 5,
    PLANISH_TYPE_INT32 = 6,
    PLANISH_TYPE_INT64 = 7,
    PLANISH_TYPE_BOOL = 9,
    PLANISH_TYPE_FLOAT16 = 10,
    PLANISH_TYPE_FLOAT64 = 11,
    PLANISH_TYPE_UINT32 = 12,
    PLANISH_TYPE_UINT64 = 13,
    PLANISH_TYPE_BFLOAT16 = 16,
    PLANISH_TYPE_FLOAT8E4M3FN = 17,
    PLANISH_TYPE_FLOAT8E4M3FNUZ = 18,
    PLANISH_TYPE_FLOAT8E5M2 = 19,
    PLANISH_TYPE_FLOAT8E5M2FNUZ = 20,
    PLANISH_TYPE_UINT4 = 21,
    PLANISH_TYPE_INT4 = 22,
    PLANISH_TYPE_FLOAT4E2M1 = 23,
    PLANISH_TYPE_FLOAT8E8M0 = 24,
    PLANISH_TYPE_UINT2 = 25,
    PLANISH_TYPE_INT2 = 26,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum PlanishType PlanishType;
#else
typedef int32_t PlanishType;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A build to be: a model and options. For one thread at a time.
 */
typedef struct PlanishBuilder PlanishBuilder;

/**
 * Memory that the library gives out.
 */
typedef struct PlanishBytes PlanishBytes;

/**
 * The ranges of a model's activations. It does not change: any number of threads may use it at once.
 */
typedef struct PlanishCalibration PlanishCalibration;

/**
 * Memory for runs of an engine. For one thread at a time, whichever it is; a call while another thread is in one is
 * `PLANISH_STATUS_BUSY`. Any number of contexts of an engine run at once.
 */
typedef struct PlanishContext PlanishContext;

/**
 * A plan that is ready to run. It does not change: any number of threads may use it at once.
 */
typedef struct PlanishEngine PlanishEngine;

/**
 * What a plan's file says of itself: pairs of texts, its own (`planish.…`) first. It does not change: any number of threads
 * may use it at once.
 */
typedef struct PlanishMetadata PlanishMetadata;

/**
 * A model that was read. It does not change: any number of threads may use it at once.
 */
typedef struct PlanishModel PlanishModel;

/**
 * A model that was built. It does not change: any number of threads may use it at once.
 */
typedef struct PlanishPlan PlanishPlan;

/**
 * Is told what a build decides: notes as information, every step with its kernel as verbose. Must not throw.
 */
typedef void (*PlanishLog)(void *user, PlanishSeverity severity, const char *message);

/**
 * Is told how far a build is: a stage, how much of it is done, and of how much. Comes from threads of the build, one call at
 * a time. Gives 0 to go on; anything else stops the build, which then ends in `PLANISH_STATUS_CANCELLED`. Must not throw.
 */
typedef int32_t (*PlanishProgress)(void *user, const char *stage, uint64_t done, uint64_t of);

/**
 * One input of a batch. The library fills in `size`, `name` and `element_type`; the callback `data`, `dims` and `rank`, in
 * memory that stays until it is called again.
 */
typedef struct PlanishBatchInput {
    /**
     * Of this structure.
     */
    size_t size;
    const char *name;
    /**
     * The batch of this input, in host memory.
     */
    const void *data;
    /**
     * Its sizes.
     */
    const int64_t *dims;
    size_t rank;
    PlanishType element_type;
} PlanishBatchInput;

/**
 * Gives the next batch: an array of pointers, one for each input of the model. Gives 1 for a batch, 0 at the end, and
 * anything else to stop, which ends in `PLANISH_STATUS_CANCELLED`. Must not throw.
 */
typedef int32_t (*PlanishNextBatch)(void *user, struct PlanishBatchInput *const *inputs, size_t n_inputs);

/**
 * How a context runs. All zero but `size` is what NULL stands for.
 */
typedef struct PlanishContextOptions {
    /**
     * Set it to `sizeof(PlanishContextOptions)`.
     */
    size_t size;
    /**
     * CPU threads of a run, the caller included; 0 for those that the plan was built for. Results do not depend on them.
     */
    uint32_t threads;
    /**
     * Streams of a GPU over which a run spreads; 0 for the usual ones.
     */
    uint32_t streams;
    /**
     * 1: launches on a GPU are not captured as a CUDA graph.
     */
    int32_t launch_one_by_one;
    /**
     * 1: waits for a GPU without sleeping, at the price of a core.
     */
    int32_t spin;
} PlanishContextOptions;

/**
 * A tensor that a run left. Set `size` to `sizeof(PlanishTensor)`; the library fills in the rest, which is valid until the
 * next call with this context.
 */
typedef struct PlanishTensor {
    /**
     * Of this structure.
     */
    size_t size;
    /**
     * Its elements, in the context's memory or in that which it was bound to.
     */
    const void *data;
    size_t n_bytes;
    /**
     * Its sizes.
     */
    const int64_t *dims;
    size_t rank;
} PlanishTensor;

/**
 * How an engine is opened. All zero but `size` is what NULL stands for.
 */
typedef struct PlanishEngineOptions {
    /**
     * Set it to `sizeof(PlanishEngineOptions)`.
     */
    size_t size;
    /**
     * `auto` (as NULL), `cpu`, `cuda` or `cuda:1`.
     */
    const char *device;
    /**
     * Bytes that a run may hold beside weights and inputs; 0 for no limit.
     */
    uint64_t max_bytes;
    /**
     * Trips of all loops of a run together; 0 for a hundred million.
     */
    uint64_t max_trips;
    /**
     * 1: weights on a GPU lie in managed memory, which the driver may move to the host and back.
     */
    int32_t managed_weights;
    /**
     * 1: the machine code of a plan for a GPU is left alone, and its kernels are compiled here. A plan for a GPU is a
     * program: open only those that you trust.
     */
    int32_t compile_here;
    /**
     * Bytes of a GPU's memory for weights; the rest stays in pinned host memory and is brought to the GPU ahead of its
     * use in every run. 0 for no limit.
     */
    uint64_t weight_budget;
} PlanishEngineOptions;

/**
 * An input or an output. Set `size` to `sizeof(PlanishTensorInfo)`; the library fills in the rest. Pointers are valid as
 * long as the model or the engine that was asked, or any context of it.
 */
typedef struct PlanishTensorInfo {
    /**
     * Of this structure.
     */
    size_t size;
    /**
     * As the model calls it.
     */
    const char *name;
    /**
     * Its sizes in words, `batch,3,224,224` say; `?` where only a run can tell.
     */
    const char *shape;
    /**
     * Its sizes, `rank` of them, -1 where they are open.
     */
    const int64_t *dims;
    /**
     * How many sizes there are; -1 where that is open, too.
     */
    int32_t rank;
    PlanishType element_type;
    /**
     * Bits of one element.
     */
    uint32_t element_bits;
    /**
     * 1 for an input, 0 for an output.
     */
    int32_t is_input;
} PlanishTensorInfo;

/**
 * A step of a plan: what TensorRT calls a layer. Set `size` to `sizeof(PlanishStep)`; the library fills in the rest.
 * Texts are valid as long as the engine that was asked.
 */
typedef struct PlanishStep {
    /**
     * Of this structure.
     */
    size_t size;
    /**
     * The layers of the model that it computes; may be empty.
     */
    const char *name;
    /**
     * Its operators, `Conv+Relu` say.
     */
    const char *operators;
    /**
     * The kernel that computes it, or how else it is run.
     */
    const char *kernel;
    /**
     * How long it took, where it was timed; else 0.
     */
    uint64_t nanoseconds;
} PlanishStep;

/**
 * Is told the time of a step. Must not throw.
 */
typedef void (*PlanishStepTime)(void *user, const struct PlanishStep *step);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A build of a model, with the options that `planish build` has by default.
 *
 * The caller sees to it that
 * `model` is one; `*builder` may be written.
 */
PlanishStatus planish_builder_new(const struct PlanishModel *model, struct PlanishBuilder **builder);

/**
 * Sets an option, by the words of `planish build`:
 *
 * - `device`: `auto`, `cpu`, `cuda` or `cuda:1`
 * - `precision`: `fp32`, `tf32`, `fp16`, `bf16`, or `int8` or `fp8` by a calibration
 * - `threads`: the CPU threads to tune for
 * - `tune-level`: `0` goes by the cost model, up to `5` measures more and more
 * - `timing-cache`: a file that keeps measured times from build to build
 * - `build-time`, `workspace`: the most seconds to search for kernels, and the most bytes that one may ask for
 * - `tactic-sources`: where kernels come from, `-cudnn` say
 * - `strict`: `1` refuses what only the slow reference can compute
 * - `verify`: `0` leaves the self-check out
 * - `fp32-layers`, `int8-layers`: names of layers, with `*` and `?`; each call adds to them
 *
 * The caller sees to it that
 * `builder` is one; `key` and `value` end in a NUL.
 */
PlanishStatus planish_builder_set(struct PlanishBuilder *builder, const char *key, const char *value);

/**
 * Adds the sizes of an input to an optimization profile: the smallest and the largest that the plan takes, and the usual
 * ones that it is tuned for. Profiles are numbered from 0; the number after the last one begins another. Without a profile
 * a plan runs at any sizes.
 *
 * The caller sees to it that
 * `builder` is one; `input` ends in a NUL; `least`, `usual` and `largest` have `rank` sizes.
 */
PlanishStatus planish_builder_add_range(struct PlanishBuilder *builder,
                                        size_t profile,
                                        const char *input,
                                        size_t rank,
                                        const int64_t *least,
                                        const int64_t *usual,
                                        const int64_t *largest);

/**
 * The ranges by which `precision` int8 or fp8 quantizes; refused if they are of another model. The builder copies them.
 *
 * The caller sees to it that
 * `builder` and `calibration` are such.
 */
PlanishStatus planish_builder_set_calibration(struct PlanishBuilder *builder,
                                              const struct PlanishCalibration *calibration);

/**
 * Has a function told what builds decide; NULL for none.
 *
 * The caller sees to it that
 * `builder` is one; `log` may be called with `user` as long as it lives.
 */
PlanishStatus planish_builder_set_log(struct PlanishBuilder *builder, PlanishLog log, void *user);

/**
 * Has a function told how far builds are; NULL for none.
 *
 * The caller sees to it that
 * `builder` is one; `progress` may be called with `user` as long as it lives.
 */
PlanishStatus planish_builder_set_progress(struct PlanishBuilder *builder, PlanishProgress progress, void *user);

/**
 * Builds the plan: optimized, tuned and checked for this machine. The builder can build again.
 *
 * The caller sees to it that
 * `builder` is one; `*plan` may be written.
 */
PlanishStatus planish_builder_build(struct PlanishBuilder *builder, struct PlanishPlan **plan);

/**
 * Ends a builder. Plans of it live on.
 *
 * The caller sees to it that
 * `builder` is one that nobody uses any more, or NULL.
 */
void planish_builder_free(struct PlanishBuilder *builder);

/**
 * Runs a model over batches and finds the ranges of its activations. `calibrator` is `entropy` (as NULL), `minmax`,
 * `percentile:99.99`, `best`, or `auto`, whichever costs the outputs least; `device` is as for `planish_builder_set`.
 *
 * The caller sees to it that
 * `model` is one; the texts are NULL or end in a NUL; `next` may be called with `user`; `*calibration` may be written.
 */
PlanishStatus planish_calibrate(const struct PlanishModel *model,
                                const char *calibrator,
                                const char *device,
                                PlanishNextBatch next,
                                void *user,
                                struct PlanishCalibration **calibration);

/**
 * Reads a calibration's file: Planish's own, or a calibration cache of TensorRT.
 *
 * The caller sees to it that
 * `path` ends in a NUL; `*calibration` may be written.
 */
PlanishStatus planish_calibration_open(const char *path, struct PlanishCalibration **calibration);

/**
 * Reads a calibration from the bytes of such a file.
 *
 * The caller sees to it that
 * `bytes` are `n_bytes`; `*calibration` may be written.
 */
PlanishStatus planish_calibration_from_bytes(const uint8_t *bytes,
                                             size_t n_bytes,
                                             struct PlanishCalibration **calibration);

/**
 * Writes a calibration's file, in one piece.
 *
 * The caller sees to it that
 * `calibration` is one; `path` ends in a NUL.
 */
PlanishStatus planish_calibration_save(const struct PlanishCalibration *calibration, const char *path);

/**
 * TensorRT's calibration cache of these ranges.
 *
 * The caller sees to it that
 * `calibration` is one; `*bytes` may be written.
 */
PlanishStatus planish_calibration_tensorrt_cache(const struct PlanishCalibration *calibration,
                                                 struct PlanishBytes **bytes);

/**
 * Ends a calibration. Builders that were given it live on.
 *
 * The caller sees to it that
 * `calibration` is one that nobody uses any more, or NULL.
 */
void planish_calibration_free(struct PlanishCalibration *calibration);

/**
 * A context of an engine, which may be freed before it.
 *
 * The caller sees to it that
 * `engine` is one; `options` is NULL or has as many bytes as its `size` says; `*context` may be written.
 */
PlanishStatus planish_context_new(const struct PlanishEngine *engine,
                                  const struct PlanishContextOptions *options,
                                  struct PlanishContext **context);

/**
 * The sizes of an input, for all runs from now on. Inputs whose sizes the model fixes have them already.
 *
 * The caller sees to it that
 * `context` is one; `dims` are `rank` sizes.
 */
PlanishStatus planish_context_set_shape(struct PlanishContext *context, size_t index, size_t rank, const int64_t *dims);

/**
 * The sizes of an input or an output: `rank` of them in `dims`, -1 where they are not known yet, or only a run can tell.
 * `rank` is -1 where that is not known either.
 *
 * The caller sees to it that
 * `context` is one; `dims` has room for `capacity` sizes; `*rank` may be written.
 */
PlanishStatus planish_context_shape(const struct PlanishContext *context,
                                    size_t index,
                                    size_t capacity,
                                    int64_t *dims,
                                    int32_t *rank);

/**
 * Has an input read from host memory, or an output written there, by all runs from now on. The memory is the caller's, and
 * stays until it is bound elsewhere or the context is freed. Outputs at multiples of 64 bytes are written in place where
 * the plan allows it, others are copied. NULL with 0 bytes unbinds: such an output is in the context's memory.
 *
 * The caller sees to it that
 * `context` is one; `data` has `n_bytes`, which nobody else uses while a run is under way.
 */
PlanishStatus planish_context_bind(struct PlanishContext *context,
                                   size_t index,
                                   void *data,
                                   size_t n_bytes);

/**
 * The same, by name: an input's or, if there is none of this name, an output's.
 *
 * The caller sees to it that
 * As for `planish_context_bind`; `name` ends in a NUL.
 */
PlanishStatus planish_context_bind_name(struct PlanishContext *context, const char *name, void *data, size_t n_bytes);

/**
 * Has an input read from, or an output written to, memory of the engine's GPU (a `CUdeviceptr`, aligned to 64 bytes as all
 * of `cudaMalloc` is), by all runs from now on.
 *
 * The caller sees to it that
 * `context` is one; there are `n_bytes` at `address`, which nobody else uses while a run is under way.
 */
PlanishStatus planish_context_bind_device(struct PlanishContext *context,
                                          size_t index,
                                          uint64_t address,
                                          size_t n_bytes);

/**
 * Runs on what is bound, and waits. On device memory it runs on a stream of the context's own: what other streams are to
 * bring is the caller's to wait for.
 *
 * The caller sees to it that
 * `context` is one; what is bound is valid.
 */
PlanishStatus planish_context_run(struct PlanishContext *context);

/**
 * Queues a run on a stream of the caller's (a `CUstream` or `cudaStream_t`; NULL is CUDA's default stream), after what is
 * queued there, and returns at once. All inputs are in device memory. On host memory there are no streams: the run is over
 * when this returns.
 *
 * The caller sees to it that
 * As for `planish_context_run`, until the run is over; `stream` is one of the engine's GPU, and may be destroyed as soon as
 * this returned.
 */
PlanishStatus planish_context_run_async(struct PlanishContext *context,
                                        void *stream);

/**
 * Waits for what earlier calls of `planish_context_run_async` queued, and tells what kernels found wrong with the inputs'
 * values (an index out of range).
 *
 * The caller sees to it that
 * `context` is one; what is bound is valid.
 */
PlanishStatus planish_context_wait(struct PlanishContext *context);

/**
 * An output that the last run left in host memory: the context's, or that which it is bound to.
 *
 * The caller sees to it that
 * `context` is one; `tensor` has as many bytes as its `size` says.
 */
PlanishStatus planish_context_output(struct PlanishContext *context, size_t index, struct PlanishTensor *tensor);

/**
 * Ends a context, after the runs that are under way.
 *
 * The caller sees to it that
 * `context` is one that nobody uses any more, or NULL.
 */
void planish_context_free(struct PlanishContext *context);

/**
 * Puts a plan on a device. A plan of another machine, or of another version of the library, is
 * `PLANISH_STATUS_NEEDS_REBUILD`: nothing is built unasked.
 *
 * The caller sees to it that
 * `plan` is one; `options` is NULL or has as many bytes as its `size` says; `*engine` may be written.
 */
PlanishStatus planish_engine_new(const struct PlanishPlan *plan,
                                 const struct PlanishEngineOptions *options,
                                 struct PlanishEngine **engine);

/**
 * Opens a plan's file and puts it on a device.
 *
 * The caller sees to it that
 * `path` ends in a NUL; the rest as for `planish_engine_new`.
 */
PlanishStatus planish_engine_open(const char *path,
                                  const struct PlanishEngineOptions *options,
                                  struct PlanishEngine **engine);

/**
 * How many inputs there are: those of the tensors 0 and on.
 *
 * The caller sees to it that
 * `engine` is one, or NULL, which has none.
 */
size_t planish_engine_input_count(const struct PlanishEngine *engine);

/**
 * How many inputs and outputs there are.
 *
 * The caller sees to it that
 * `engine` is one, or NULL, which has none.
 */
size_t planish_engine_tensor_count(const struct PlanishEngine *engine);

/**
 * What an input or an output is, by its number: inputs come first.
 *
 * The caller sees to it that
 * `engine` is one; `info` has as many bytes as its `size` says.
 */
PlanishStatus planish_engine_tensor(const struct PlanishEngine *engine, size_t index, struct PlanishTensorInfo *info);

/**
 * The number of an input or an output, -1 if there is none of this name. An output that has the name of an input is
 * found by its number alone.
 *
 * The caller sees to it that
 * `engine` is one; `name` ends in a NUL.
 */
int64_t planish_engine_find(const struct PlanishEngine *engine, const char *name);

/**
 * Whether the engine runs on a GPU, and so takes addresses in its memory: 1 or 0.
 *
 * The caller sees to it that
 * `engine` is one, or NULL.
 */
int32_t planish_engine_is_on_gpu(const struct PlanishEngine *engine);

/**
 * Bytes of all weights, in the form that kernels read.
 *
 * The caller sees to it that
 * `engine` is one, or NULL.
 */
size_t planish_engine_weight_bytes(const struct PlanishEngine *engine);

/**
 * How many steps a run has.
 *
 * The caller sees to it that
 * `engine` is one, or NULL, which has none.
 */
size_t planish_engine_step_count(const struct PlanishEngine *engine);

/**
 * What a step is, by its number.
 *
 * The caller sees to it that
 * `engine` is one; `step` has as many bytes as its `size` says.
 */
PlanishStatus planish_engine_step(const struct PlanishEngine *engine, size_t index, struct PlanishStep *step);

/**
 * Gives an engine the weights of a plan that `planish_plan_refit` made of its own, for all its contexts: a run has the
 * weights that it began with, runs that begin after this returned have the new ones. Any thread may call it at any time.
 * The engine holds the weights that it was opened with until it ends.
 *
 * The caller sees to it that
 * `engine` and `plan` are such.
 */
PlanishStatus planish_engine_refit(const struct PlanishEngine *engine, const struct PlanishPlan *plan);

/**
 * Ends an engine. Contexts of it live on.
 *
 * The caller sees to it that
 * `engine` is one that nobody uses any more, or NULL.
 */
void planish_engine_free(struct PlanishEngine *engine);

/**
 * What a device is, in words; for `auto` (as NULL), the one that it stands for here.
 *
 * The caller sees to it that
 * `device` is NULL or ends in a NUL; `text` has room for `capacity` bytes, the last of which becomes a NUL.
 */
PlanishStatus planish_describe_device(const char *device, char *text, size_t capacity);

/**
 * Reads what a plan's file says of itself: `planish.name`, `.producer`, `.format`, `.is_current` (0 if it is built again
 * before it runs), `.precision`, `.threads`, `.certificate`, `.is_stripped`, `.weight_bytes`, `.target.0`, `.input.0`,
 * `.output.0` and on, and the pairs of whoever built it. The rest of the file is not read, nor said to be whole.
 *
 * The caller sees to it that
 * `path` ends in a NUL; `*metadata` may be written.
 */
PlanishStatus planish_metadata_open(const char *path, struct PlanishMetadata **metadata);

/**
 * How many pairs there are.
 *
 * The caller sees to it that
 * `metadata` is such, or NULL, which has none.
 */
size_t planish_metadata_count(const struct PlanishMetadata *metadata);

/**
 * The key of a pair, by its number; NULL if there is none. It lives as long as the metadata.
 *
 * The caller sees to it that
 * `metadata` is such, or NULL.
 */
const char *planish_metadata_key(const struct PlanishMetadata *metadata, size_t index);

/**
 * The value of a key; NULL if there is no such key. It lives as long as the metadata.
 *
 * The caller sees to it that
 * `metadata` is such, or NULL; `key` ends in a NUL.
 */
const char *planish_metadata_value(const struct PlanishMetadata *metadata, const char *key);

/**
 * Ends it.
 *
 * The caller sees to it that
 * `metadata` is such, and nobody uses it any more, or NULL.
 */
void planish_metadata_free(struct PlanishMetadata *metadata);

/**
 * Reads an ONNX file; its external data is looked for beside it.
 *
 * The caller sees to it that
 * `path` ends in a NUL; `*model` may be written.
 */
PlanishStatus planish_model_open(const char *path, struct PlanishModel **model);

/**
 * Reads a model from the bytes of an ONNX file, which are copied. It has no external data.
 *
 * The caller sees to it that
 * `bytes` are `n_bytes`; `*model` may be written.
 */
PlanishStatus planish_model_from_bytes(const uint8_t *bytes, size_t n_bytes, struct PlanishModel **model);

/**
 * How many inputs the model has: those of the tensors 0 and on.
 *
 * The caller sees to it that
 * `model` is one, or NULL, which has none.
 */
size_t planish_model_input_count(const struct PlanishModel *model);

/**
 * How many inputs and outputs the model has.
 *
 * The caller sees to it that
 * `model` is one, or NULL, which has none.
 */
size_t planish_model_tensor_count(const struct PlanishModel *model);

/**
 * What an input or an output is, by its number: inputs come first.
 *
 * The caller sees to it that
 * `model` is one; `info` has as many bytes as its `size` says.
 */
PlanishStatus planish_model_tensor(const struct PlanishModel *model, size_t index, struct PlanishTensorInfo *info);

/**
 * Ends a model. Builders of it live on.
 *
 * The caller sees to it that
 * `model` is one that nobody uses any more, or NULL.
 */
void planish_model_free(struct PlanishModel *model);

/**
 * Opens a plan's file and checks every byte of it. The file is mapped: it may be replaced while the plan lives, not changed
 * in place.
 *
 * The caller sees to it that
 * `path` ends in a NUL; `*plan` may be written.
 */
PlanishStatus planish_plan_open(const char *path,
                                struct PlanishPlan **plan);

/**
 * Opens a plan from the bytes of its file, which are copied and checked.
 *
 * The caller sees to it that
 * `bytes` are `n_bytes`; `*plan` may be written.
 */
PlanishStatus planish_plan_from_bytes(const uint8_t *bytes, size_t n_bytes, struct PlanishPlan **plan);

/**
 * Writes the plan's file, in one piece.
 *
 * The caller sees to it that
 * `plan` is one; `path` ends in a NUL.
 */
PlanishStatus planish_plan_save(const struct PlanishPlan *plan, const char *path);

/**
 * The bytes of the plan's file.
 *
 * The caller sees to it that
 * `plan` is one; `*bytes` may be written.
 */
PlanishStatus planish_plan_bytes(const struct PlanishPlan *plan, struct PlanishBytes **bytes);

/**
 * Whether this very plan passed its self-check: 1 or 0.
 *
 * The caller sees to it that
 * `plan` is one, or NULL.
 */
int32_t planish_plan_is_checked(const struct PlanishPlan *plan);

/**
 * The same plan with the weights of another model of the same graph, not built again; it counts as unchecked.
 *
 * The caller sees to it that
 * `plan` and `model` are such; `*refitted` may be written.
 */
PlanishStatus planish_plan_refit(const struct PlanishPlan *plan,
                                 const struct PlanishModel *model,
                                 struct PlanishPlan **refitted);

/**
 * The same plan without its weights, as large as its program; `planish_plan_refit` with the model that it was built from
 * gives it back. It cannot run until then.
 *
 * The caller sees to it that
 * `plan` is one; `*stripped` may be written.
 */
PlanishStatus planish_plan_strip(const struct PlanishPlan *plan, struct PlanishPlan **stripped);

/**
 * Ends a plan. Engines of it live on.
 *
 * The caller sees to it that
 * `plan` is one that nobody uses any more, or NULL.
 */
void planish_plan_free(struct PlanishPlan *plan);

/**
 * Where the memory begins.
 *
 * The caller sees to it that
 * `bytes` is such, or NULL.
 */
const uint8_t *planish_bytes_data(const struct PlanishBytes *bytes);

/**
 * How many bytes there are.
 *
 * The caller sees to it that
 * `bytes` is such, or NULL, which has none.
 */
size_t planish_bytes_size(const struct PlanishBytes *bytes);

/**
 * Gives the memory back.
 *
 * The caller sees to it that
 * `bytes` is such, and nobody uses it any more, or NULL.
 */
void planish_bytes_free(struct PlanishBytes *bytes);

/**
 * Runs once on what is bound in host memory, and tells a function the time of every step, in the order of the run.
 *
 * The caller sees to it that
 * As for `planish_context_run`; `tell` may be called with `user`.
 */
PlanishStatus planish_context_profile(struct PlanishContext *context, PlanishStepTime tell, void *user);

/**
 * How many optimization profiles the plan has; 0 for one that runs at any sizes.
 *
 * The caller sees to it that
 * `engine` is one, or NULL, which has none.
 */
size_t planish_engine_profile_count(const struct PlanishEngine *engine);

/**
 * The sizes of an input or an output in an optimization profile: the smallest (`which` is 0), those that it is tuned for (1)
 * or the largest (2). Written as by `planish_context_shape`.
 *
 * The caller sees to it that
 * `engine` is one; `dims` has room for `capacity` sizes; `*rank` may be written.
 */
PlanishStatus planish_engine_profile_shape(const struct PlanishEngine *engine,
                                           size_t profile,
                                           size_t index,
                                           int32_t which,
                                           size_t capacity,
                                           int64_t *dims,
                                           int32_t *rank);

/**
 * What went wrong in the last call of this thread that failed, where, and what to try. The text is this thread's until its
 * next call that fails.
 */
const char *planish_error(void);

/**
 * The name of a status, `wrong shape` say. Never NULL.
 */
const char *planish_status_name(int32_t status);

/**
 * The version of the library, `0.1.0` say.
 */
const char *planish_version(void);

/**
 * The `PLANISH_ABI_VERSION` that the library was compiled with.
 */
uint32_t planish_abi_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLANISH_H */
