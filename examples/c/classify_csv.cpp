// Classifies the rows of a CSV file in batches of 32, and prints accuracy and throughput. Each row has the numbers of one
// sample and, last, the number of its class.
//
//     c++ -std=c++17 classify_csv.cpp $(pkg-config --cflags --libs planish) -o classify_csv
//     ./classify_csv model.plan samples.csv
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <planish.h>

namespace {

constexpr size_t kBatch = 32;

[[noreturn]] void fail(const std::string &message) {
    std::fprintf(stderr, "error: %s\n", message.c_str());
    std::exit(2);
}

void check(PlanishStatus status) {
    if (status != PLANISH_STATUS_OK) {
        fail(planish_error());
    }
}

using Engine = std::unique_ptr<PlanishEngine, decltype(&planish_engine_free)>;
using Context = std::unique_ptr<PlanishContext, decltype(&planish_context_free)>;

struct Samples {
    std::vector<float> values;
    std::vector<size_t> labels;
    size_t n_features = 0;
};

Samples read_csv(const char *path) {
    std::ifstream file(path);
    if (!file) {
        fail(std::string("cannot read ") + path);
    }
    Samples samples;
    std::string line, cell;
    for (size_t number = 1; std::getline(file, line); number++) {
        if (line.empty()) {
            continue;
        }
        std::vector<float> row;
        std::istringstream cells(line);
        while (std::getline(cells, cell, ',')) {
            char *end = nullptr;
            row.push_back(std::strtof(cell.c_str(), &end));
            if (end == cell.c_str()) {
                fail(std::string(path) + ":" + std::to_string(number) + ": `" + cell + "` is not a number");
            }
        }
        if (row.size() < 2 || (samples.n_features != 0 && row.size() != samples.n_features + 1)) {
            fail(std::string(path) + ":" + std::to_string(number) + ": this row has " + std::to_string(row.size()) +
                 " cells");
        }
        samples.n_features = row.size() - 1;
        samples.labels.push_back(static_cast<size_t>(row.back()));
        samples.values.insert(samples.values.end(), row.begin(), row.end() - 1);
    }
    return samples;
}

} // namespace

int main(int n_arguments, char **arguments) {
    if (n_arguments != 3) {
        fail("usage: classify_csv MODEL.plan SAMPLES.csv");
    }
    PlanishEngine *opened = nullptr;
    check(planish_engine_open(arguments[1], nullptr, &opened));
    Engine engine(opened, planish_engine_free);
    PlanishContext *made = nullptr;
    check(planish_context_new(engine.get(), nullptr, &made));
    Context context(made, planish_context_free);

    const Samples samples = read_csv(arguments[2]);
    const size_t n_samples = samples.labels.size(), output = planish_engine_input_count(engine.get());

    // The sizes of one sample are the model's; the batch is ours.
    PlanishTensorInfo info{};
    info.size = sizeof info;
    check(planish_engine_tensor(engine.get(), 0, &info));
    if (info.rank < 1 || info.element_type != PLANISH_TYPE_FLOAT32) {
        fail("the model's first input is not of f32 with a batch");
    }
    std::vector<int64_t> dims(info.dims, info.dims + info.rank);

    size_t n_right = 0;
    const auto started = std::chrono::steady_clock::now();
    for (size_t first = 0; first < n_samples; first += kBatch) {
        const size_t n = std::min(kBatch, n_samples - first);
        dims[0] = static_cast<int64_t>(n);
        check(planish_context_set_shape(context.get(), 0, dims.size(), dims.data()));
        auto *batch = const_cast<float *>(&samples.values[first * samples.n_features]);
        check(planish_context_bind(context.get(), 0, batch, n * samples.n_features * sizeof(float)));
        check(planish_context_run(context.get()));
        PlanishTensor scores{};
        scores.size = sizeof scores;
        check(planish_context_output(context.get(), output, &scores));
        const auto *score = static_cast<const float *>(scores.data);
        const size_t n_classes = scores.n_bytes / sizeof(float) / n;
        for (size_t i = 0; i < n; i++, score += n_classes) {
            n_right += static_cast<size_t>(std::max_element(score, score + n_classes) - score) == samples.labels[first + i];
        }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    std::printf("%zu samples in batches of %zu: %zu right (%.2f %%), %.0f samples/s\n", n_samples, kBatch, n_right,
                n_samples ? 100.0 * static_cast<double>(n_right) / static_cast<double>(n_samples) : 0.0,
                static_cast<double>(n_samples) / seconds.count());
}
