/* What planish.h promises, call by call: `contract MODEL.onnx OTHER.onnx INPUT RESULT` runs the model (f32[batch,8] to
 * f32[batch,3]) on the floats in a file, five rows, writes what it gives, and fails where the library does other than it
 * says. OTHER is the same model with other weights. Compiled with the first header, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <planish.h>

#define FAIL(what) (fprintf(stderr, "%s:%d: %s; the library says: %s\n", __FILE__, __LINE__, what, planish_error()), exit(1))
#define MUST(condition) \
    do { \
        if (!(condition)) FAIL(#condition); \
    } while (0)
#define OK(call) MUST((call) == PLANISH_STATUS_OK)
/* The call fails in this way and says these words. */
#define REFUSED(call, status, words) \
    do { \
        MUST((call) == (status)); \
        MUST(strstr(planish_error(), words) != NULL); \
    } while (0)

enum { ROWS = 5, FEATURES = 8, CLASSES = 3 };

static int n_logged, n_told;

static void log_line(void *user, PlanishSeverity severity, const char *message) {
    MUST(user == &n_logged && severity >= PLANISH_SEVERITY_ERROR && message[0] != 0);
    n_logged++;
}

static int32_t tell(void *user, const char *stage, uint64_t done, uint64_t of) {
    MUST(stage[0] != 0 && done <= of);
    n_told++;
    return user != NULL;
}

static float *batches;

static int32_t next_batch(void *user, PlanishBatchInput *const *inputs, size_t n_inputs) {
    static const int64_t dims[] = {1, FEATURES};
    int *row = user;
    MUST(n_inputs == 1 && strcmp(inputs[0]->name, "x") == 0 && inputs[0]->element_type == PLANISH_TYPE_FLOAT32);
    if (*row == ROWS) return 0;
    inputs[0]->data = batches + FEATURES * (*row)++;
    inputs[0]->dims = dims;
    inputs[0]->rank = 2;
    return 1;
}

static int32_t no_batch(void *user, PlanishBatchInput *const *inputs, size_t n_inputs) {
    (void)user, (void)inputs, (void)n_inputs;
    return -1;
}

static void count_step(void *user, const PlanishStep *step) {
    MUST(step->operators[0] != 0 && step->kernel[0] != 0);
    ++*(size_t *)user;
}

static PlanishPlan *build(PlanishModel *model) {
    static const int64_t least[] = {1, FEATURES}, usual[] = {4, FEATURES}, largest[] = {16, FEATURES};
    PlanishBuilder *builder = NULL;
    PlanishPlan *plan = NULL;
    OK(planish_builder_new(model, &builder));
    OK(planish_builder_set(builder, "device", "cpu"));
    OK(planish_builder_set(builder, "tune-level", "0"));
    OK(planish_builder_set(builder, "threads", "1"));
    REFUSED(planish_builder_set(builder, "depth", "3"), PLANISH_STATUS_BAD_OPTION, "no option `depth`");
    REFUSED(planish_builder_set(builder, "threads", "0"), PLANISH_STATUS_BAD_OPTION, "at least 1");
    REFUSED(planish_builder_set(builder, "threads", "-1"), PLANISH_STATUS_BAD_OPTION, "not a number");
    REFUSED(planish_builder_set(builder, "precision", "fp64"), PLANISH_STATUS_BAD_OPTION, "not a precision");
    REFUSED(planish_builder_set(builder, "strict", "maybe"), PLANISH_STATUS_BAD_OPTION, "1 or 0");
    REFUSED(planish_builder_set(builder, NULL, "1"), PLANISH_STATUS_BAD_OPTION, "NULL");
    REFUSED(planish_builder_add_range(builder, 1, "x", 2, least, usual, largest), PLANISH_STATUS_BAD_OPTION, "0 profiles");
    OK(planish_builder_add_range(builder, 0, "y", 2, least, usual, largest));
    REFUSED(planish_builder_build(builder, &plan), PLANISH_STATUS_WRONG_INPUTS, "`y`, which is not an input");
    MUST(plan == NULL);
    planish_builder_free(builder);
    OK(planish_builder_new(model, &builder));
    OK(planish_builder_set(builder, "device", "cpu"));
    OK(planish_builder_set(builder, "tune-level", "0"));
    OK(planish_builder_set(builder, "threads", "1"));
    OK(planish_builder_add_range(builder, 0, "x", 2, least, usual, largest));
    OK(planish_builder_set_log(builder, log_line, &n_logged));
    OK(planish_builder_set_progress(builder, tell, "stop"));
    REFUSED(planish_builder_build(builder, &plan), PLANISH_STATUS_CANCELLED, "stopped");
    OK(planish_builder_set_progress(builder, tell, NULL));
    OK(planish_builder_build(builder, &plan));
    MUST(n_logged > 1 && n_told > 1 && planish_plan_is_checked(plan) == 1);
    planish_builder_free(builder);
    return plan;
}

static void calibrated(PlanishModel *model) {
    PlanishCalibration *calibration = NULL, *read = NULL;
    PlanishBuilder *builder = NULL;
    PlanishPlan *plan = NULL;
    PlanishBytes *cache = NULL;
    int row = 0;
    REFUSED(planish_calibrate(model, "mean", NULL, next_batch, &row, &calibration), PLANISH_STATUS_BAD_OPTION, "`mean`");
    REFUSED(planish_calibrate(model, NULL, "cpu", NULL, &row, &calibration), PLANISH_STATUS_BAD_OPTION, "NULL");
    REFUSED(planish_calibrate(model, NULL, "cpu", no_batch, NULL, &calibration), PLANISH_STATUS_CANCELLED, "stopped");
    OK(planish_calibrate(model, "minmax", "cpu", next_batch, &row, &calibration));
    OK(planish_calibration_tensorrt_cache(calibration, &cache));
    MUST(planish_bytes_size(cache) > 4 && memcmp(planish_bytes_data(cache), "TRT-", 4) == 0);
    OK(planish_calibration_from_bytes(planish_bytes_data(cache), planish_bytes_size(cache), &read));
    OK(planish_builder_new(model, &builder));
    OK(planish_builder_set(builder, "device", "cpu"));
    OK(planish_builder_set(builder, "tune-level", "0"));
    OK(planish_builder_set_calibration(builder, read));
    REFUSED(planish_builder_build(builder, &plan), PLANISH_STATUS_BAD_OPTION, "int8");
    OK(planish_builder_set(builder, "precision", "int8"));
    OK(planish_builder_build(builder, &plan));
    planish_plan_free(plan);
    planish_builder_free(builder);
    planish_calibration_free(read);
    planish_calibration_free(calibration);
    planish_bytes_free(cache);
}

static PlanishEngine *opened(PlanishPlan *plan) {
    PlanishEngine *engine = NULL;
    PlanishBytes *bytes = NULL;
    PlanishPlan *again = NULL;
    PlanishEngineOptions options = {.size = sizeof options};
    OK(planish_plan_bytes(plan, &bytes));
    uint8_t *damaged = malloc(planish_bytes_size(bytes));
    memcpy(damaged, planish_bytes_data(bytes), planish_bytes_size(bytes));
    damaged[planish_bytes_size(bytes) / 2] ^= 1;
    REFUSED(planish_plan_from_bytes(damaged, planish_bytes_size(bytes), &again), PLANISH_STATUS_BAD_FILE, "");
    free(damaged);
    OK(planish_plan_from_bytes(planish_bytes_data(bytes), planish_bytes_size(bytes), &again));
    planish_bytes_free(bytes);
    options.device = "gpu";
    REFUSED(planish_engine_new(again, &options, &engine), PLANISH_STATUS_BAD_OPTION, "not a device");
    options.device = "cpu";
    options.managed_weights = 1;
    REFUSED(planish_engine_new(again, &options, &engine), PLANISH_STATUS_BAD_OPTION, "managed weights");
    options.managed_weights = 0;
    options.size = 3;
    REFUSED(planish_engine_new(again, &options, &engine), PLANISH_STATUS_BAD_OPTION, "sizeof(PlanishEngineOptions)");
    options.size = sizeof options;
    OK(planish_engine_new(again, &options, &engine));
    planish_plan_free(again);
    MUST(planish_engine_is_on_gpu(engine) == 0 && planish_engine_weight_bytes(engine) > 0);
    MUST(planish_engine_input_count(engine) == 1 && planish_engine_tensor_count(engine) == 2);
    MUST(planish_engine_find(engine, "x") == 0 && planish_engine_find(engine, "y") == 1);
    MUST(planish_engine_find(engine, "z") == -1);
    PlanishTensorInfo info = {.size = sizeof info};
    OK(planish_engine_tensor(engine, 0, &info));
    MUST(info.rank == 2 && info.dims[0] == -1 && info.dims[1] == FEATURES && info.is_input == 1);
    MUST(info.element_type == PLANISH_TYPE_FLOAT32 && info.element_bits == 32 && strcmp(info.shape, "batch,8") == 0);
    REFUSED(planish_engine_tensor(engine, 2, &info), PLANISH_STATUS_WRONG_INPUTS, "counted from 0");
    PlanishStep step = {.size = sizeof step};
    for (size_t i = 0; i < planish_engine_step_count(engine); i++) OK(planish_engine_step(engine, i, &step));
    int64_t sizes[4];
    int32_t rank = 0;
    for (int32_t which = 0; which < 3; which++) {
        static const int64_t batches[] = {1, 4, 16};
        OK(planish_engine_profile_shape(engine, 0, 1, which, 4, sizes, &rank));
        MUST(rank == 2 && sizes[0] == batches[which] && sizes[1] == CLASSES);
    }
    MUST(planish_engine_profile_count(engine) == 1);
    REFUSED(planish_engine_profile_shape(engine, 1, 0, 0, 4, sizes, &rank), PLANISH_STATUS_BAD_OPTION, "no profile 1");
    REFUSED(planish_engine_profile_shape(engine, 0, 0, 3, 4, sizes, &rank), PLANISH_STATUS_BAD_OPTION, "not 3");
    REFUSED(planish_engine_step(engine, 9999, &step), PLANISH_STATUS_BAD_OPTION, "no step 9999");
    return engine;
}

static void run(PlanishContext *context, float *x, float *y) {
    static const int64_t dims[] = {ROWS, FEATURES}, large[] = {17, FEATURES}, other[] = {ROWS, FEATURES + 1};
    int64_t shape[4];
    int32_t rank = 0;
    PlanishTensor made = {.size = sizeof made};
    REFUSED(planish_context_run(context), PLANISH_STATUS_WRONG_SHAPE, "planish_context_set_shape");
    OK(planish_context_shape(context, 1, 4, shape, &rank));
    MUST(rank == 2 && shape[0] == -1 && shape[1] == CLASSES);
    REFUSED(planish_context_set_shape(context, 0, 2, other), PLANISH_STATUS_WRONG_SHAPE, "[-1, 8]");
    REFUSED(planish_context_set_shape(context, 1, 2, dims), PLANISH_STATUS_WRONG_SHAPE, "follow from the inputs");
    OK(planish_context_set_shape(context, 0, 2, dims));
    REFUSED(planish_context_run(context), PLANISH_STATUS_WRONG_INPUTS, "not bound");
    OK(planish_context_shape(context, 1, 4, shape, &rank));
    MUST(rank == 2 && shape[0] == ROWS && shape[1] == CLASSES);
    REFUSED(planish_context_shape(context, 1, 1, shape, &rank), PLANISH_STATUS_BAD_OPTION, "have room");
    REFUSED(planish_context_bind(context, 7, x, 4), PLANISH_STATUS_WRONG_INPUTS, "counted from 0");
    REFUSED(planish_context_bind_name(context, "z", x, 4), PLANISH_STATUS_WRONG_INPUTS, "`x`, `y`");
    REFUSED(planish_context_bind_device(context, 0, 4096, 64), PLANISH_STATUS_WRONG_INPUTS, "bind it to host memory");
    OK(planish_context_bind(context, 0, x, 4 * ROWS * FEATURES - 1));
    REFUSED(planish_context_run(context), PLANISH_STATUS_WRONG_SHAPE, "160 bytes");
    OK(planish_context_bind_name(context, "x", x, 4 * ROWS * FEATURES));
    OK(planish_context_run(context));
    OK(planish_context_output(context, 1, &made));
    MUST(made.rank == 2 && made.dims[0] == ROWS && made.dims[1] == CLASSES && made.n_bytes == 4 * ROWS * CLASSES);
    memcpy(y, made.data, made.n_bytes);

    /* The same bits in memory of ours: aligned, written in place; not aligned, copied; and by every way to run. */
    float *room = aligned_alloc(64, 256);
    for (int offset = 0; offset < 2; offset++) {
        for (int way = 0; way < 3; way++) {
            size_t n_steps = 0;
            memset(room, 0, 256);
            OK(planish_context_bind_name(context, "y", room + offset, 4 * ROWS * CLASSES));
            if (way == 0) OK(planish_context_run(context));
            if (way == 1) OK(planish_context_run_async(context, NULL));
            if (way == 2) OK(planish_context_profile(context, count_step, &n_steps));
            OK(planish_context_wait(context));
            MUST((way == 2) == (n_steps > 0));
            MUST(memcmp(room + offset, y, 4 * ROWS * CLASSES) == 0);
        }
        OK(planish_context_bind_name(context, "y", room + offset, 4));
        REFUSED(planish_context_run(context), PLANISH_STATUS_WRONG_SHAPE, "60 bytes");
    }
    OK(planish_context_bind(context, 1, NULL, 0));
    OK(planish_context_run(context));
    OK(planish_context_output(context, 1, &made));
    MUST(memcmp(made.data, y, made.n_bytes) == 0);
    free(room);
    REFUSED(planish_context_output(context, 0, &made), PLANISH_STATUS_BAD_OPTION, "no output");
    OK(planish_context_set_shape(context, 0, 2, large));
    OK(planish_context_bind(context, 0, x, 4 * 17 * FEATURES)); /* as much as there is */
    REFUSED(planish_context_run(context), PLANISH_STATUS_WRONG_SHAPE, "`batch` is 17");
    REFUSED(planish_context_run(NULL), PLANISH_STATUS_BAD_OPTION, "NULL");
}

int main(int n_arguments, char **arguments) {
    static float x[17 * FEATURES], y[ROWS * CLASSES], other_y[ROWS * CLASSES];
    MUST(n_arguments == 5);
    MUST(planish_abi_version() == PLANISH_ABI_VERSION && planish_version()[0] != 0);
    char text[512];
    OK(planish_describe_device("cpu", text, sizeof text));
    MUST(text[0] != 0);
    REFUSED(planish_describe_device("cpu", text, 1), PLANISH_STATUS_BAD_OPTION, "have room");
    FILE *file = fopen(arguments[3], "rb");
    MUST(file != NULL && fread(x, 4, ROWS * FEATURES, file) == ROWS * FEATURES);
    fclose(file);
    batches = x;

    PlanishModel *model = NULL, *other = NULL;
    REFUSED(planish_model_open("/no such/file.onnx", &model), PLANISH_STATUS_IO, "cannot read /no such/file.onnx");
    REFUSED(planish_model_from_bytes((const uint8_t *)"no model", 8, &model), PLANISH_STATUS_BAD_MODEL, "");
    REFUSED(planish_model_open(NULL, &model), PLANISH_STATUS_BAD_OPTION, "NULL");
    MUST(model == NULL);
    OK(planish_model_open(arguments[1], &model));
    OK(planish_model_open(arguments[2], &other));
    MUST(planish_model_input_count(model) == 1 && planish_model_tensor_count(model) == 2);
    PlanishTensorInfo info = {.size = sizeof info};
    OK(planish_model_tensor(model, 1, &info));
    MUST(strcmp(info.name, "y") == 0 && info.is_input == 0);

    PlanishPlan *plan = build(model), *refitted = NULL;
    calibrated(model);
    OK(planish_plan_refit(plan, other, &refitted));
    MUST(planish_plan_is_checked(refitted) == 0);
    PlanishPlan *plans[] = {plan, refitted};
    float *results[] = {y, other_y};
    for (int i = 0; i < 2; i++) {
        PlanishEngine *engine = opened(plans[i]);
        PlanishContext *context = NULL;
        PlanishContextOptions options = {.size = sizeof options};
        options.threads = 2;
        OK(planish_context_new(engine, &options, &context));
        planish_engine_free(engine);
        run(context, x, results[i]);
        planish_context_free(context);
        planish_plan_free(plans[i]);
    }
    planish_model_free(other);
    planish_model_free(model);
    MUST(memcmp(y, other_y, sizeof y) != 0);
    file = fopen(arguments[4], "wb");
    MUST(file != NULL && fwrite(y, 4, ROWS * CLASSES, file) == ROWS * CLASSES);
    MUST(fwrite(other_y, 4, ROWS * CLASSES, file) == ROWS * CLASSES && fclose(file) == 0);
    return 0;
}
