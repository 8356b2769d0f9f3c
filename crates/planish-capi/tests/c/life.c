/* What becomes of a plan after its build: `life MODEL.onnx OTHER.onnx PLAN` writes the plan, reads its metadata, takes its
 * weights out and puts them back, and changes those of an engine while a context of it lives. */
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

enum { ROWS = 5, FEATURES = 8, CLASSES = 3 };

static float x[ROWS * FEATURES], y[ROWS * CLASSES];

static void run(PlanishContext *context, float *result) {
    memset(y, 0, sizeof y);
    OK(planish_context_run(context));
    memcpy(result, y, sizeof y);
}

int main(int n, char **arguments) {
    MUST(n == 4);
    for (int i = 0; i < ROWS * FEATURES; i++) x[i] = (float)(i % 7) - 3;
    PlanishModel *model = NULL, *other = NULL;
    OK(planish_model_open(arguments[1], &model));
    OK(planish_model_open(arguments[2], &other));
    PlanishBuilder *builder = NULL;
    PlanishPlan *plan = NULL, *newer = NULL, *stripped = NULL, *filled = NULL;
    OK(planish_builder_new(model, &builder));
    OK(planish_builder_set(builder, "device", "cpu"));
    OK(planish_builder_set(builder, "tune-level", "0"));
    OK(planish_builder_build(builder, &plan));
    planish_builder_free(builder);
    OK(planish_plan_save(plan, arguments[3]));

    PlanishMetadata *metadata = NULL;
    MUST(planish_metadata_open("/no such/file.plan", &metadata) == PLANISH_STATUS_IO && metadata == NULL);
    OK(planish_metadata_open(arguments[3], &metadata));
    MUST(strcmp(planish_metadata_value(metadata, "planish.precision"), "fp32") == 0);
    MUST(strcmp(planish_metadata_value(metadata, "planish.certificate"), "Checked") == 0);
    MUST(strncmp(planish_metadata_value(metadata, "planish.input.0"), "x f32[", 6) == 0);
    MUST(planish_metadata_value(metadata, "no such key") == NULL);
    size_t n_pairs = planish_metadata_count(metadata);
    MUST(n_pairs > 9 && planish_metadata_key(metadata, n_pairs) == NULL);
    for (size_t i = 0; i < n_pairs; i++) {
        MUST(planish_metadata_value(metadata, planish_metadata_key(metadata, i)) != NULL);
    }
    planish_metadata_free(metadata);

    /* Without its weights it does not run; with them it is what it was. */
    PlanishEngine *engine = NULL;
    OK(planish_plan_strip(plan, &stripped));
    MUST(planish_engine_new(stripped, NULL, &engine) == PLANISH_STATUS_NEEDS_REBUILD);
    MUST(strstr(planish_error(), "planish refit") != NULL);
    OK(planish_plan_refit(stripped, model, &filled));
    MUST(planish_plan_is_checked(filled) == 1);

    /* A budget for weights is for GPUs. */
    PlanishEngineOptions options = {.size = sizeof options, .device = "cpu", .weight_budget = 1 << 20};
    MUST(planish_engine_new(filled, &options, &engine) == PLANISH_STATUS_BAD_OPTION);
    MUST(strstr(planish_error(), "a weight budget") != NULL);

    /* Other weights for a context that runs. */
    PlanishContext *context = NULL;
    float before[ROWS * CLASSES], after[ROWS * CLASSES];
    OK(planish_plan_refit(plan, other, &newer));
    OK(planish_engine_new(filled, NULL, &engine));
    OK(planish_context_new(engine, NULL, &context));
    const int64_t dims[] = {ROWS, FEATURES};
    OK(planish_context_set_shape(context, 0, 2, dims));
    OK(planish_context_bind(context, 0, x, sizeof x));
    OK(planish_context_bind(context, 1, y, sizeof y));
    run(context, before);
    OK(planish_engine_refit(engine, newer));
    run(context, after);
    MUST(memcmp(before, after, sizeof before) != 0);
    OK(planish_engine_refit(engine, plan));
    run(context, after);
    MUST(memcmp(before, after, sizeof before) == 0);
    MUST(planish_engine_refit(engine, stripped) == PLANISH_STATUS_NEEDS_REBUILD);
    MUST(planish_engine_refit(NULL, plan) == PLANISH_STATUS_BAD_OPTION);

    planish_context_free(context);
    planish_engine_free(engine);
    planish_plan_free(filled);
    planish_plan_free(stripped);
    planish_plan_free(newer);
    planish_plan_free(plan);
    planish_model_free(other);
    planish_model_free(model);
    return 0;
}
