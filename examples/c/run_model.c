/* Builds a plan of an ONNX model, or opens one, runs it on zeros, and prints its outputs and the time of every step.
 *
 *     cc run_model.c $(pkg-config --cflags --libs planish) -o run_model && ./run_model model.onnx
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <planish.h>

/* Ends the program with the library's own words where a call fails. */
static void check(PlanishStatus status) {
    if (status != PLANISH_STATUS_OK) {
        fprintf(stderr, "error (%s): %s\n", planish_status_name(status), planish_error());
        exit(2);
    }
}

static void log_line(void *user, PlanishSeverity severity, const char *message) {
    (void)user;
    if (severity <= PLANISH_SEVERITY_INFO) {
        fprintf(stderr, "note: %s\n", message);
    }
}

static int32_t show_progress(void *user, const char *stage, uint64_t done, uint64_t of) {
    (void)user;
    fprintf(stderr, "\r%-40s %llu/%llu ", stage, (unsigned long long)done, (unsigned long long)of);
    return 0; /* anything else stops the build */
}

static PlanishEngine *open_or_build(const char *path) {
    PlanishEngine *engine = NULL;
    size_t length = strlen(path);
    if (length > 5 && strcmp(path + length - 5, ".plan") == 0) {
        check(planish_engine_open(path, NULL, &engine));
        return engine;
    }
    PlanishModel *model = NULL;
    PlanishBuilder *builder = NULL;
    PlanishPlan *plan = NULL;
    check(planish_model_open(path, &model));
    check(planish_builder_new(model, &builder));
    check(planish_builder_set_log(builder, log_line, NULL));
    check(planish_builder_set_progress(builder, show_progress, NULL));
    check(planish_builder_build(builder, &plan));
    fprintf(stderr, "\n%s\n", planish_plan_is_checked(plan) ? "checked" : "not checked");
    check(planish_engine_new(plan, NULL, &engine));
    /* What is made of an object lives on without it. */
    planish_plan_free(plan);
    planish_builder_free(builder);
    planish_model_free(model);
    return engine;
}

static void print_step(void *user, const PlanishStep *step) {
    (void)user;
    printf("%9.1f us  %s by %s\n", step->nanoseconds / 1e3, step->operators, step->kernel);
}

int main(int n_arguments, char **arguments) {
    if (n_arguments != 2) {
        fprintf(stderr, "usage: %s MODEL.onnx|MODEL.plan\n", arguments[0]);
        return 2;
    }
    PlanishEngine *engine = open_or_build(arguments[1]);
    PlanishContext *context = NULL;
    check(planish_context_new(engine, NULL, &context));

    size_t n_inputs = planish_engine_input_count(engine), n_tensors = planish_engine_tensor_count(engine);
    void **inputs = calloc(n_inputs ? n_inputs : 1, sizeof *inputs);
    for (size_t i = 0; i < n_inputs; i++) {
        PlanishTensorInfo info = {.size = sizeof info};
        check(planish_engine_tensor(engine, i, &info));
        printf("input %s: %s\n", info.name, info.shape);
        int64_t dims[16];
        size_t n_bits = info.element_bits;
        for (int32_t axis = 0; axis < info.rank && axis < 16; axis++) {
            dims[axis] = info.dims[axis] < 0 ? 1 : info.dims[axis]; /* 1 where the size is open */
            n_bits *= (size_t)dims[axis];
        }
        check(planish_context_set_shape(context, i, (size_t)info.rank, dims));
        size_t n_bytes = (n_bits + 7) / 8;
        inputs[i] = calloc(n_bytes ? n_bytes : 1, 1);
        check(planish_context_bind(context, i, inputs[i], n_bytes));
    }
    check(planish_context_run(context));

    for (size_t i = n_inputs; i < n_tensors; i++) {
        PlanishTensorInfo info = {.size = sizeof info};
        PlanishTensor made = {.size = sizeof made};
        check(planish_engine_tensor(engine, i, &info));
        check(planish_context_output(context, i, &made));
        printf("output %s: %s, %zu bytes:", info.name, info.shape, made.n_bytes);
        for (size_t k = 0; info.element_type == PLANISH_TYPE_FLOAT32 && k < made.n_bytes / 4 && k < 4; k++) {
            printf(" %g", ((const float *)made.data)[k]);
        }
        printf("\n");
    }
    check(planish_context_profile(context, print_step, NULL));

    for (size_t i = 0; i < n_inputs; i++) {
        free(inputs[i]);
    }
    free(inputs);
    planish_context_free(context);
    planish_engine_free(engine);
    return 0;
}
