// Sizes of profiles, and what calibrators give, on their way to planish.h.
#ifndef PLANISH_TENSORRT_CALIBRATOR_H
#define PLANISH_TENSORRT_CALIBRATOR_H

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "types.h"

namespace planish_trt {

// The smallest, the usual and the largest sizes of an input.
struct Range {
    nvinfer1::Dims dims[3] = {};
    bool is_set[3] = {};

    bool is_whole() const noexcept {
        return is_set[0] && is_set[1] && is_set[2] && dims[0].nbDims == dims[1].nbDims && dims[1].nbDims == dims[2].nbDims;
    }

    std::vector<int64_t> sizes(size_t which) const {
        return std::vector<int64_t>(dims[which].d, dims[which].d + dims[which].nbDims);
    }

    PlanishStatus add(PlanishBuilder *builder, size_t profile, std::string const &input) const {
        std::vector<int64_t> const least = sizes(0), usual = sizes(1), largest = sizes(2);
        return planish_builder_add_range(builder, profile, input.c_str(), usual.size(), least.data(), usual.data(),
                                         largest.data());
    }
};

// Copies what a calibrator points at, be it in host memory or on a GPU. The driver is asked where the process has loaded it.
inline bool copy_to_host(void *to, void const *from, size_t n_bytes) noexcept {
    using Attribute = int (*)(void *, int, unsigned long long);
    using Copy = int (*)(void *, unsigned long long, size_t);
    constexpr int kMemoryType = 2, kDevice = 2; // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE
    if (void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
        auto attribute = reinterpret_cast<Attribute>(dlsym(driver, "cuPointerGetAttribute"));
        auto copy = reinterpret_cast<Copy>(dlsym(driver, "cuMemcpyDtoH_v2"));
        auto const address = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(from));
        unsigned int type = 0;
        bool const is_device = attribute != nullptr && attribute(&type, kMemoryType, address) == 0 && type == kDevice;
        bool const is_copied = is_device && copy != nullptr && copy(to, address, n_bytes) == 0;
        dlclose(driver);
        if (is_device) {
            return is_copied;
        }
    }
    std::memcpy(to, from, n_bytes);
    return true;
}

// The batches of a calibrator.
struct Batches {
    nvinfer1::IInt8Calibrator *calibrator;
    PlanishModel *model;
    nvinfer1::ILogger *logger;
    // Sizes of inputs; those that it does not give are those of a batch.
    std::map<std::string, Range> const *ranges;
    std::vector<std::vector<uint8_t>> data{};
    std::vector<std::vector<int64_t>> dims{};

    // The ranges of the calibrator's cache, or of its batches, of which the cache is written.
    PlanishCalibration *calibration() {
        std::size_t length = 0;
        void const *cache = calibrator->readCalibrationCache(length);
        PlanishCalibration *read = nullptr;
        if (cache != nullptr && length != 0) {
            good(logger, planish_calibration_from_bytes(static_cast<uint8_t const *>(cache), length, &read));
            return read;
        }
        PlanishCalibration *found = nullptr;
        PlanishBytes *bytes = nullptr;
        if (good(logger, planish_calibrate(model, method(), nullptr, next, this, &found)) &&
            good(logger, planish_calibration_tensorrt_cache(found, &bytes))) {
            calibrator->writeCalibrationCache(planish_bytes_data(bytes), planish_bytes_size(bytes));
            // From the cache in both cases: it holds no means of channels to correct biases by, and an engine must not depend
            // on whether its cache was there.
            good(logger, planish_calibration_from_bytes(planish_bytes_data(bytes), planish_bytes_size(bytes), &read));
        }
        planish_bytes_free(bytes);
        planish_calibration_free(found);
        return read;
    }

private:
    char const *method() const noexcept {
        switch (calibrator->getAlgorithm()) {
        case nvinfer1::CalibrationAlgoType::kLEGACY_CALIBRATION: return "percentile:99.99";
        case nvinfer1::CalibrationAlgoType::kMINMAX_CALIBRATION: return "minmax";
        default: return "entropy";
        }
    }

    static int32_t next(void *self, PlanishBatchInput *const *inputs, size_t n_inputs) noexcept {
        return static_cast<Batches *>(self)->give(inputs, n_inputs);
    }

    int32_t give(PlanishBatchInput *const *inputs, size_t n_inputs) {
        std::vector<void *> bindings(n_inputs, nullptr);
        std::vector<char const *> names;
        for (size_t i = 0; i < n_inputs; i++) {
            names.push_back(inputs[i]->name);
        }
        if (!calibrator->getBatch(bindings.data(), names.data(), static_cast<int32_t>(n_inputs))) {
            return 0;
        }
        data.resize(n_inputs);
        dims.resize(n_inputs);
        for (size_t i = 0; i < n_inputs; i++) {
            PlanishTensorInfo info{};
            info.size = sizeof info;
            if (!good(logger, planish_model_tensor(model, i, &info)) || info.rank < 0 || bindings[i] == nullptr) {
                say(logger, Severity::kERROR, "a calibrator's batch lacks the address or the sizes of an input");
                return -1;
            }
            dims[i].assign(info.dims, info.dims + info.rank);
            auto const given = ranges == nullptr ? std::map<std::string, Range>::const_iterator() : ranges->find(info.name);
            if (ranges != nullptr && given != ranges->end()) {
                dims[i] = given->second.sizes(1);
            }
            size_t n_bits = info.element_bits;
            for (int64_t &size : dims[i]) {
                size = size < 0 ? calibrator->getBatchSize() : size;
                n_bits *= static_cast<size_t>(size);
            }
            // Programs fill the same memory again for the next batch.
            data[i].resize((n_bits + 7) / 8);
            if (!copy_to_host(data[i].data(), bindings[i], data[i].size())) {
                say(logger, Severity::kERROR, "a calibrator's batch cannot be copied from the GPU");
                return -1;
            }
            inputs[i]->data = data[i].data();
            inputs[i]->dims = dims[i].data();
            inputs[i]->rank = dims[i].size();
        }
        return 1;
    }
};

} // namespace planish_trt

#endif // PLANISH_TENSORRT_CALIBRATOR_H
