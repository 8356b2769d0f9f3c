// IRuntime, ICudaEngine, IExecutionContext and IEngineInspector, over planish.h.
#ifndef PLANISH_TENSORRT_ENGINE_H
#define PLANISH_TENSORRT_ENGINE_H

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "types.h"

namespace planish_trt {

// An engine, and what its contexts share: they may outlive it.
struct Engine : NoCopy {
    nvinfer1::ILogger *logger;
    PlanishPlan *plan;
    PlanishEngine *engine = nullptr;
    std::vector<PlanishTensorInfo> tensors;
    std::vector<nvinfer1::DataType> types;
    size_t n_inputs = 0;
    bool is_on_gpu = false;

    Engine(nvinfer1::ILogger *logger, PlanishPlan *plan) noexcept : logger(logger), plan(plan) {}
    ~Engine() {
        planish_engine_free(engine);
        planish_plan_free(plan);
    }

    bool open() {
        if (!good(logger, planish_engine_new(plan, nullptr, &engine))) {
            return false;
        }
        n_inputs = planish_engine_input_count(engine);
        is_on_gpu = planish_engine_is_on_gpu(engine) != 0;
        for (size_t i = 0; i < planish_engine_tensor_count(engine); i++) {
            PlanishTensorInfo info{};
            info.size = sizeof info;
            nvinfer1::DataType type;
            if (!good(logger, planish_engine_tensor(engine, i, &info))) {
                return false;
            }
            if (!has_type(info.element_type, type)) {
                std::string message = std::string("TensorRT has no element type for `") + info.name +
                                      "`; run the plan through planish.h";
                say(logger, Severity::kERROR, message.c_str());
                return false;
            }
            tensors.push_back(info);
            types.push_back(type);
        }
        return true;
    }

    // The number of a tensor; -1 where there is none of this name, which the logger is told.
    int32_t find(char const *name) const noexcept {
        int64_t index = name == nullptr ? -1 : planish_engine_find(engine, name);
        if (index < 0) {
            say(logger, Severity::kERROR, name == nullptr ? "the name of a tensor is NULL" : name);
            say(logger, Severity::kERROR, "there is no input or output of this name");
        }
        return static_cast<int32_t>(index);
    }

    bool has(int32_t index) const noexcept { return index >= 0 && static_cast<size_t>(index) < tensors.size(); }

    nvinfer1::Dims dims(int32_t index) const noexcept {
        return has(index) ? dims_of(tensors[index].rank, tensors[index].dims) : dims_of(-1, nullptr);
    }

    nvinfer1::Dims profile_dims(int32_t index, int32_t profile, nvinfer1::OptProfileSelector select) const noexcept {
        int64_t sizes[nvinfer1::Dims::MAX_DIMS];
        int32_t rank = -1;
        if (!has(index) || profile < 0 ||
            !good(logger, planish_engine_profile_shape(engine, static_cast<size_t>(profile), static_cast<size_t>(index),
                                                       static_cast<int32_t>(select), nvinfer1::Dims::MAX_DIMS, sizes,
                                                       &rank))) {
            return dims_of(-1, nullptr);
        }
        return dims_of(rank, sizes);
    }
};

} // namespace planish_trt

namespace nvinfer1 {

class ICudaEngine;

// Runs an engine at addresses of the caller's: in host memory for a plan on the CPU, in device memory for one on a GPU.
class IExecutionContext : planish_trt::NoCopy {
public:
    IExecutionContext(ICudaEngine const &engine, std::shared_ptr<planish_trt::Engine> shared, PlanishContext *context)
        : engine_(&engine), shared_(std::move(shared)), context_(context), addresses_(shared_->tensors.size()) {}
    virtual ~IExecutionContext() noexcept { planish_context_free(context_); }
    void destroy() noexcept { delete this; }

    ICudaEngine const &getEngine() const noexcept { return *engine_; }
    void setName(char const *name) noexcept { name_ = name == nullptr ? "" : name; }
    char const *getName() const noexcept { return name_.c_str(); }
    void setDebugSync(bool sync) noexcept { debug_sync_ = sync; }
    bool getDebugSync() const noexcept { return debug_sync_; }
    void setErrorRecorder(IErrorRecorder *) noexcept {}

    // Sizes, by name and by number.
    bool setInputShape(char const *name, Dims const &dims) noexcept { return setShape(shared_->find(name), dims); }
    bool setBindingDimensions(int32_t index, Dims const &dims) noexcept { return setShape(index, dims); }
    Dims getTensorShape(char const *name) const noexcept { return shape(shared_->find(name)); }
    Dims getBindingDimensions(int32_t index) const noexcept { return shape(index); }
    Dims getTensorStrides(char const *name) const noexcept {
        Dims dims = getTensorShape(name);
        Dims::Size stride = 1;
        for (int32_t axis = dims.nbDims - 1; axis >= 0; axis--) {
            Dims::Size size = dims.d[axis];
            dims.d[axis] = stride;
            stride = size < 0 || stride < 0 ? -1 : stride * size;
        }
        return dims;
    }
    bool allInputDimensionsSpecified() const noexcept { return open_inputs().empty(); }
    bool allInputShapesSpecified() const noexcept { return true; }
    // The names of inputs whose sizes are not known; gives how many there are.
    int32_t inferShapes(int32_t nbMaxNames, char const **tensorNames) noexcept {
        std::vector<char const *> open = open_inputs();
        for (size_t i = 0; tensorNames != nullptr && i < open.size() && static_cast<int32_t>(i) < nbMaxNames; i++) {
            tensorNames[i] = open[i];
        }
        return static_cast<int32_t>(open.size());
    }
    // Profiles are found by the sizes of inputs.
    bool setOptimizationProfile(int32_t index) noexcept { return setOptimizationProfileAsync(index, nullptr); }
    bool setOptimizationProfileAsync(int32_t index, cudaStream_t) noexcept {
        profile_ = index;
        return true;
    }
    int32_t getOptimizationProfile() const noexcept { return profile_; }

    // Addresses.
    bool setTensorAddress(char const *name, void *data) noexcept { return setAddress(shared_->find(name), data); }
    bool setInputTensorAddress(char const *name, void const *data) noexcept {
        return setAddress(shared_->find(name), const_cast<void *>(data));
    }
    bool setOutputTensorAddress(char const *name, void *data) noexcept { return setAddress(shared_->find(name), data); }
    void const *getTensorAddress(char const *name) const noexcept { return address(shared_->find(name)); }
    void *getOutputTensorAddress(char const *name) const noexcept { return address(shared_->find(name)); }
    void setDeviceMemory(void *) noexcept {}
    // Asked before a run for the output's memory; for outputs whose size only the run can tell it cannot be.
    bool setOutputAllocator(char const *name, IOutputAllocator *allocator) noexcept {
        int32_t const index = shared_->find(name);
        if (!shared_->has(index) || (bytes(index) == kUnknown && open_inputs().empty())) {
            planish_trt::say(shared_->logger, planish_trt::Severity::kERROR,
                             "an output whose size only a run can tell takes no allocator; give it memory for the largest");
            return false;
        }
        allocators_.resize(addresses_.size());
        allocators_[index] = allocator;
        return true;
    }
    IOutputAllocator *getOutputAllocator(char const *name) const noexcept {
        int32_t const index = shared_->find(name);
        return index < 0 || allocators_.empty() ? nullptr : allocators_[index];
    }
    int64_t getMaxOutputSize(char const *name) const noexcept {
        int32_t const index = shared_->find(name);
        return index < 0 || bytes(index) == kUnknown ? -1 : static_cast<int64_t>(bytes(index));
    }

    // Every run reports by itself; on a GPU none can.
    void setProfiler(IProfiler *profiler) noexcept {
        profiler_ = profiler;
        if (profiler != nullptr && shared_->is_on_gpu) {
            planish_trt::say(shared_->logger, planish_trt::Severity::kWARNING,
                             "runs on device memory are not timed layer by layer; use `planish profile`");
        }
    }
    IProfiler *getProfiler() const noexcept { return profiler_; }
    void setEnqueueEmitsProfile(bool) noexcept {}
    bool getEnqueueEmitsProfile() const noexcept { return true; }
    bool reportToProfiler() const noexcept { return true; }

    // Runs. Host memory has no streams: what runs there is over when the call returns.
    bool enqueueV3(cudaStream_t stream) noexcept { return run(stream, false); }
    bool enqueueV2(void *const *bindings, cudaStream_t stream, cudaEvent_t *inputConsumed) noexcept {
        if (inputConsumed != nullptr && shared_->is_on_gpu) {
            planish_trt::say(shared_->logger, planish_trt::Severity::kERROR,
                             "enqueueV2 records no event when inputs are consumed; give nullptr");
            return false;
        }
        return setAddresses(bindings) && run(stream, false);
    }
    bool executeV2(void *const *bindings) noexcept { return setAddresses(bindings) && run(nullptr, true); }

private:
    bool setShape(int32_t index, Dims const &dims) noexcept {
        if (!shared_->has(index) || dims.nbDims < 0 || dims.nbDims > Dims::MAX_DIMS) {
            return false;
        }
        int64_t sizes[Dims::MAX_DIMS];
        for (int32_t axis = 0; axis < dims.nbDims; axis++) {
            sizes[axis] = dims.d[axis];
        }
        is_bound_ = false;
        return planish_trt::good(shared_->logger, planish_context_set_shape(context_, static_cast<size_t>(index),
                                                                            static_cast<size_t>(dims.nbDims), sizes));
    }

    Dims shape(int32_t index) const noexcept {
        int64_t sizes[Dims::MAX_DIMS];
        int32_t rank = -1;
        if (!shared_->has(index) ||
            !planish_trt::good(shared_->logger, planish_context_shape(context_, static_cast<size_t>(index),
                                                                      Dims::MAX_DIMS, sizes, &rank))) {
            return planish_trt::dims_of(-1, nullptr);
        }
        return planish_trt::dims_of(rank, sizes);
    }

    std::vector<char const *> open_inputs() const {
        std::vector<char const *> open;
        for (size_t i = 0; i < shared_->n_inputs; i++) {
            if (bytes(static_cast<int32_t>(i)) == kUnknown) {
                open.push_back(shared_->tensors[i].name);
            }
        }
        return open;
    }

    bool setAddress(int32_t index, void *data) noexcept {
        if (!shared_->has(index)) {
            return false;
        }
        is_bound_ = is_bound_ && addresses_[index] == data;
        addresses_[index] = data;
        return true;
    }

    bool setAddresses(void *const *bindings) noexcept {
        if (bindings == nullptr) {
            planish_trt::say(shared_->logger, planish_trt::Severity::kERROR, "the bindings are NULL");
            return false;
        }
        for (size_t i = 0; i < addresses_.size(); i++) {
            setAddress(static_cast<int32_t>(i), bindings[i]);
        }
        return true;
    }

    void *address(int32_t index) const noexcept { return shared_->has(index) ? addresses_[index] : nullptr; }

    // Bytes of a tensor at the sizes that are set.
    size_t bytes(int32_t index) const noexcept {
        Dims dims = shape(index);
        size_t bits = shared_->tensors[index].element_bits;
        for (int32_t axis = 0; axis < dims.nbDims; axis++) {
            if (dims.d[axis] < 0) {
                return kUnknown;
            }
            bits *= static_cast<size_t>(dims.d[axis]);
        }
        return dims.nbDims < 0 ? kUnknown : (bits + 7) / 8;
    }

    // Hands the addresses on. An output whose size only a run can tell has as much room as its owner says: all that it takes.
    bool bind() noexcept {
        for (size_t i = 0; i < addresses_.size(); i++) {
            size_t n_bytes = bytes(static_cast<int32_t>(i));
            if (addresses_[i] == nullptr && n_bytes != 0) {
                std::string message = std::string("the address of `") + shared_->tensors[i].name + "` is not set";
                planish_trt::say(shared_->logger, planish_trt::Severity::kERROR, message.c_str());
                return false;
            }
            PlanishStatus status = shared_->is_on_gpu
                                       ? planish_context_bind_device(context_, i, reinterpret_cast<uint64_t>(addresses_[i]), n_bytes)
                                       : planish_context_bind(context_, i, addresses_[i], n_bytes);
            if (!planish_trt::good(shared_->logger, status)) {
                return false;
            }
        }
        is_bound_ = true;
        return true;
    }

    static void report(void *profiler, PlanishStep const *step) noexcept {
        char const *name = step->name[0] == 0 ? step->operators : step->name;
        static_cast<IProfiler *>(profiler)->reportLayerTime(name, static_cast<float>(step->nanoseconds) / 1e6F);
    }

    // Has allocators give the memory of their outputs.
    bool allocate(cudaStream_t stream) noexcept {
        for (size_t i = 0; i < allocators_.size(); i++) {
            if (allocators_[i] == nullptr) {
                continue;
            }
            auto const index = static_cast<int32_t>(i);
            char const *name = shared_->tensors[i].name;
            size_t const size = bytes(index);
            void *memory = nullptr;
            if (size != kUnknown) {
                // Those of TensorRT 10 take the stream; those before have the other function.
                memory = allocators_[i]->reallocateOutputAsync(name, addresses_[i], size == 0 ? 1 : size, 64, stream);
                memory = memory == nullptr ? allocators_[i]->reallocateOutput(name, addresses_[i], size == 0 ? 1 : size, 64) : memory;
            }
            if (memory == nullptr) {
                std::string const message = std::string("the allocator of `") + name + "` gives no memory";
                planish_trt::say(shared_->logger, planish_trt::Severity::kERROR, message.c_str());
                return false;
            }
            setAddress(index, memory);
            allocators_[i]->notifyShape(name, shape(index));
        }
        return true;
    }

    bool run(cudaStream_t stream, bool waits) noexcept {
        if (!allocate(stream)) {
            return false;
        }
        if (!is_bound_ && !bind()) {
            return false;
        }
        PlanishStatus status;
        if (!shared_->is_on_gpu && profiler_ != nullptr) {
            status = planish_context_profile(context_, report, profiler_);
        } else {
            // On CUDA's default stream also where this waits: copies of the caller's may be under way there.
            status = planish_context_run_async(context_, stream);
        }
        if (status == PLANISH_STATUS_OK && waits && shared_->is_on_gpu) {
            status = planish_context_wait(context_);
        }
        return planish_trt::good(shared_->logger, status);
    }

    static constexpr size_t kUnknown = static_cast<size_t>(-1) / 2;
    ICudaEngine const *engine_;
    std::shared_ptr<planish_trt::Engine> shared_;
    PlanishContext *context_;
    std::vector<void *> addresses_;
    std::vector<IOutputAllocator *> allocators_;
    IProfiler *profiler_ = nullptr;
    std::string name_;
    int32_t profile_ = 0;
    bool debug_sync_ = false;
    // Whether the library has the sizes and addresses as they are now.
    bool is_bound_ = false;
};

// Describes the layers of an engine.
class IEngineInspector : planish_trt::NoCopy {
public:
    explicit IEngineInspector(std::shared_ptr<planish_trt::Engine> shared) : shared_(std::move(shared)) {}
    virtual ~IEngineInspector() noexcept = default;
    void destroy() noexcept { delete this; }

    char const *getLayerInformation(int32_t layerIndex, LayerInformationFormat format) noexcept {
        text_ = layer(layerIndex, format);
        return text_.c_str();
    }

    char const *getEngineInformation(LayerInformationFormat format) noexcept {
        std::string all;
        int32_t const n = static_cast<int32_t>(planish_engine_step_count(shared_->engine));
        for (int32_t i = 0; i < n; i++) {
            bool const is_json = format == LayerInformationFormat::kJSON;
            all += layer(i, format) + (is_json ? (i + 1 < n ? ",\n" : "\n") : "\n");
        }
        text_ = format == LayerInformationFormat::kJSON ? "{\"Layers\": [\n" + all + "]}" : all;
        return text_.c_str();
    }

private:
    static std::string quoted(char const *text) {
        std::string out = "\"";
        for (; *text != 0; text++) {
            if (*text == '"' || *text == '\\') {
                out += '\\';
            }
            out += static_cast<unsigned char>(*text) < 0x20 ? ' ' : *text;
        }
        return out + "\"";
    }

    std::string layer(int32_t index, LayerInformationFormat format) const {
        PlanishStep step{};
        step.size = sizeof step;
        if (index < 0 || !planish_trt::good(shared_->logger, planish_engine_step(shared_->engine, static_cast<size_t>(index), &step))) {
            return "";
        }
        if (format == LayerInformationFormat::kJSON) {
            return "{\"Name\": " + quoted(step.name) + ", \"LayerType\": " + quoted(step.operators) +
                   ", \"TacticName\": " + quoted(step.kernel) + "}";
        }
        std::string name = step.name[0] == 0 ? step.operators : step.name;
        return name + ": " + step.operators + " by " + step.kernel;
    }

    std::shared_ptr<planish_trt::Engine> shared_;
    std::string text_;
};

// A plan that is ready to run.
class ICudaEngine : planish_trt::NoCopy {
public:
    explicit ICudaEngine(std::shared_ptr<planish_trt::Engine> shared) : shared_(std::move(shared)) {}
    virtual ~ICudaEngine() noexcept = default;
    void destroy() noexcept { delete this; }

    IExecutionContext *createExecutionContext() noexcept {
        PlanishContext *context = nullptr;
        if (!planish_trt::good(shared_->logger, planish_context_new(shared_->engine, nullptr, &context))) {
            return nullptr;
        }
        return new IExecutionContext(*this, shared_, context);
    }
    // Contexts have memory of their own in any case.
    IExecutionContext *createExecutionContextWithoutDeviceMemory() noexcept { return createExecutionContext(); }
    size_t getDeviceMemorySize() const noexcept { return 0; }
    int64_t getDeviceMemorySizeV2() const noexcept { return 0; }
    IEngineInspector *createEngineInspector() const noexcept { return new IEngineInspector(shared_); }
    IHostMemory *serialize() const noexcept {
        PlanishBytes *bytes = nullptr;
        return planish_trt::good(shared_->logger, planish_plan_bytes(shared_->plan, &bytes)) ? new IHostMemory(bytes)
                                                                                             : nullptr;
    }

    // By name.
    int32_t getNbIOTensors() const noexcept { return static_cast<int32_t>(shared_->tensors.size()); }
    char const *getIOTensorName(int32_t index) const noexcept { return getBindingName(index); }
    TensorIOMode getTensorIOMode(char const *name) const noexcept {
        int32_t index = shared_->find(name);
        return index < 0 ? TensorIOMode::kNONE : bindingIsInput(index) ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT;
    }
    Dims getTensorShape(char const *name) const noexcept { return shared_->dims(shared_->find(name)); }
    DataType getTensorDataType(char const *name) const noexcept { return getBindingDataType(shared_->find(name)); }
    TensorLocation getTensorLocation(char const *) const noexcept {
        return shared_->is_on_gpu ? TensorLocation::kDEVICE : TensorLocation::kHOST;
    }
    TensorFormat getTensorFormat(char const *) const noexcept { return TensorFormat::kLINEAR; }
    TensorFormat getTensorFormat(char const *, int32_t) const noexcept { return TensorFormat::kLINEAR; }
    char const *getTensorFormatDesc(char const *) const noexcept { return "Row major linear format"; }
    char const *getTensorFormatDesc(char const *, int32_t) const noexcept { return "Row major linear format"; }
    int32_t getTensorVectorizedDim(char const *) const noexcept { return -1; }
    int32_t getTensorBytesPerComponent(char const *name) const noexcept {
        int32_t index = shared_->find(name);
        return index < 0 ? -1 : static_cast<int32_t>((shared_->tensors[index].element_bits + 7) / 8);
    }
    int32_t getTensorComponentsPerElement(char const *) const noexcept { return 1; }
    bool isShapeInferenceIO(char const *) const noexcept { return false; }
    Dims getProfileShape(char const *name, int32_t profile, OptProfileSelector select) const noexcept {
        return shared_->profile_dims(shared_->find(name), profile, select);
    }

    // By number.
    int32_t getNbBindings() const noexcept { return getNbIOTensors(); }
    int32_t getBindingIndex(char const *name) const noexcept { return shared_->find(name); }
    char const *getBindingName(int32_t index) const noexcept {
        return shared_->has(index) ? shared_->tensors[index].name : nullptr;
    }
    bool bindingIsInput(int32_t index) const noexcept { return shared_->has(index) && shared_->tensors[index].is_input != 0; }
    Dims getBindingDimensions(int32_t index) const noexcept { return shared_->dims(index); }
    DataType getBindingDataType(int32_t index) const noexcept {
        return shared_->has(index) ? shared_->types[index] : DataType::kFLOAT;
    }
    TensorFormat getBindingFormat(int32_t) const noexcept { return TensorFormat::kLINEAR; }
    Dims getProfileDimensions(int32_t index, int32_t profile, OptProfileSelector select) const noexcept {
        return shared_->profile_dims(index, profile, select);
    }

    char const *getName() const noexcept { return "planish"; }
    int32_t getNbLayers() const noexcept { return static_cast<int32_t>(planish_engine_step_count(shared_->engine)); }
    int32_t getNbOptimizationProfiles() const noexcept {
        size_t n = planish_engine_profile_count(shared_->engine);
        return n == 0 ? 1 : static_cast<int32_t>(n);
    }
    int32_t getMaxBatchSize() const noexcept { return 1; }
    EngineCapability getEngineCapability() const noexcept { return EngineCapability::kSTANDARD; }
    int32_t getNbAuxStreams() const noexcept { return 0; }
    bool hasImplicitBatchDimension() const noexcept { return false; }
    bool isRefittable() const noexcept { return false; }
    void setErrorRecorder(IErrorRecorder *) noexcept {}

private:
    std::shared_ptr<planish_trt::Engine> shared_;
};

// Opens plans.
class IRuntime : planish_trt::NoCopy {
public:
    explicit IRuntime(ILogger &logger) noexcept : logger_(&logger) {}
    virtual ~IRuntime() noexcept = default;
    void destroy() noexcept { delete this; }

    // The engine of a plan's bytes; nullptr where the logger was told why not.
    ICudaEngine *deserializeCudaEngine(void const *blob, std::size_t size) noexcept {
        PlanishPlan *plan = nullptr;
        if (!planish_trt::good(logger_, planish_plan_from_bytes(static_cast<uint8_t const *>(blob), size, &plan))) {
            return nullptr;
        }
        auto shared = std::make_shared<planish_trt::Engine>(logger_, plan);
        return shared->open() ? new ICudaEngine(std::move(shared)) : nullptr;
    }
    ICudaEngine *deserializeCudaEngine(void const *blob, std::size_t size, void *) noexcept {
        return deserializeCudaEngine(blob, size);
    }
    ILogger *getLogger() const noexcept { return logger_; }
    void setDLACore(int32_t) noexcept {}
    int32_t getDLACore() const noexcept { return 0; }
    int32_t getNbDLACores() const noexcept { return 0; }
    bool setMaxThreads(int32_t) noexcept { return true; }
    void setGpuAllocator(IGpuAllocator *) noexcept {}
    void setErrorRecorder(IErrorRecorder *) noexcept {}

private:
    ILogger *logger_;
};

inline IRuntime *createInferRuntime(ILogger &logger) noexcept { return new IRuntime(logger); }

} // namespace nvinfer1

#endif // PLANISH_TENSORRT_ENGINE_H
