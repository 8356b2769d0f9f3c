// A client of TensorRT 10, as its users write them: builds an engine from ONNX with a profile, serializes it to a file, opens
// that, and runs batches by tensor names with enqueueV3 on a stream. `tensorrt10 MODEL.onnx ENGINE INPUT RESULT [fp16]`
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <NvInfer.h>
#include <NvOnnxParser.h>
#include <cuda_runtime_api.h>

using namespace nvinfer1;

#define CHECK_CUDA(call) \
    do { \
        cudaError_t error_ = (call); \
        if (error_ != cudaSuccess) throw std::runtime_error(std::string(#call ": ") + cudaGetErrorString(error_)); \
    } while (0)

class Logger : public ILogger {
public:
    void log(Severity severity, const char *msg) noexcept override {
        if (severity <= Severity::kWARNING) std::cerr << "[TRT] " << msg << std::endl;
        counts[static_cast<int>(severity)]++;
    }
    int counts[5] = {};
} gLogger;

struct LayerTimes : public IProfiler {
    void reportLayerTime(const char *layerName, float ms) noexcept override {
        if (layerName != nullptr && layerName[0] != 0 && ms >= 0) n++;
    }
    int n = 0;
};

// Counts the stages of a build.
struct Stages : public IProgressMonitor {
    void phaseStart(const char *, const char *, int32_t) noexcept override { started++; }
    bool stepComplete(const char *, int32_t) noexcept override { return true; }
    void phaseFinish(const char *) noexcept override { finished++; }
    int started = 0, finished = 0;
};

// Gives an output memory that is there already, and keeps its sizes.
struct Memory : public IOutputAllocator {
    explicit Memory(void *memory) : memory(memory) {}
    void *reallocateOutput(const char *, void *, uint64_t, uint64_t) noexcept override {
        n_asked++;
        return memory;
    }
    void notifyShape(const char *, const Dims &dims) noexcept override { shape = dims; }
    void *memory;
    Dims shape{};
    int n_asked = 0;
};

static size_t elementSize(DataType type) {
    switch (type) {
    case DataType::kFLOAT:
    case DataType::kINT32: return 4;
    case DataType::kHALF:
    case DataType::kBF16: return 2;
    case DataType::kINT64: return 8;
    default: return 1;
    }
}

static size_t volume(const Dims &dims) {
    size_t n = 1;
    for (int i = 0; i < dims.nbDims; i++) n *= dims.d[i];
    return n;
}

static void build(const std::string &onnx, const std::string &path, bool fp16) {
    auto builder = std::unique_ptr<IBuilder>(createInferBuilder(gLogger));
    auto network = std::unique_ptr<INetworkDefinition>(builder->createNetworkV2(0));
    auto parser = std::unique_ptr<nvonnxparser::IParser>(nvonnxparser::createParser(*network, gLogger));
    if (parser->parseFromFile((onnx + ".not-there").c_str(), static_cast<int>(ILogger::Severity::kWARNING)) ||
        parser->getNbErrors() != 1) {
        throw std::runtime_error("a file that is not there was read");
    }
    parser->clearErrors();
    if (!parser->parseFromFile(onnx.c_str(), static_cast<int>(ILogger::Severity::kWARNING))) {
        for (int i = 0; i < parser->getNbErrors(); i++) std::cerr << parser->getError(i)->desc() << std::endl;
        throw std::runtime_error("cannot parse " + onnx);
    }
    auto config = std::unique_ptr<IBuilderConfig>(builder->createBuilderConfig());
    config->setMemoryPoolLimit(MemoryPoolType::kWORKSPACE, 1U << 28);
    config->setBuilderOptimizationLevel(0);
    if (fp16 && builder->platformHasFastFp16()) config->setFlag(BuilderFlag::kFP16);
    ITensor *input = network->getInput(0);
    Dims dims = input->getDimensions();
    auto profile = builder->createOptimizationProfile();
    const int batches[] = {1, 4, 16};
    for (int i = 0; i < 3; i++) {
        dims.d[0] = batches[i];
        profile->setDimensions(input->getName(), static_cast<OptProfileSelector>(i), dims);
    }
    if (config->addOptimizationProfile(profile) != 0) throw std::runtime_error("the profile is not valid");
    auto times = std::unique_ptr<ITimingCache>(config->createTimingCache(nullptr, 0));
    Stages stages;
    config->setProgressMonitor(&stages);
    if (!config->setTimingCache(*times, false)) throw std::runtime_error("no timing cache");
    auto serialized = std::unique_ptr<IHostMemory>(builder->buildSerializedNetwork(*network, *config));
    if (!serialized) throw std::runtime_error("no engine was built");
    if (stages.started == 0 || stages.started != stages.finished) throw std::runtime_error("stages were not told");
    auto kept = std::unique_ptr<IHostMemory>(config->getTimingCache()->serialize());
    auto again = std::unique_ptr<ITimingCache>(config->createTimingCache(kept->data(), kept->size()));
    if (!again->combine(*times, false) || !again->reset()) throw std::runtime_error("a timing cache is refused");
    std::ofstream(path, std::ios::binary).write(static_cast<const char *>(serialized->data()), serialized->size());
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    try {
        build(argv[1], argv[2], argc > 5);
        std::ifstream file(argv[2], std::ios::binary);
        std::vector<char> blob((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        auto runtime = std::unique_ptr<IRuntime>(createInferRuntime(gLogger));
        auto damaged = blob;
        damaged[damaged.size() / 2] ^= 1;
        if (runtime->deserializeCudaEngine(damaged.data(), damaged.size()) != nullptr) throw std::runtime_error("damaged, and open");
        auto engine = std::unique_ptr<ICudaEngine>(runtime->deserializeCudaEngine(blob.data(), blob.size()));
        if (!engine) throw std::runtime_error("the engine does not open");
        auto context = std::unique_ptr<IExecutionContext>(engine->createExecutionContext());

        std::ifstream in(argv[3], std::ios::binary);
        std::vector<char> input((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        const char *inputName = engine->getIOTensorName(0);
        Dims inputDims = engine->getTensorShape(inputName);
        if (inputDims.d[0] != -1 || engine->getProfileShape(inputName, 0, OptProfileSelector::kMAX).d[0] != 16) {
            throw std::runtime_error("the sizes are not those of the profile");
        }
        inputDims.d[0] = 99;
        context->setInputShape(inputName, inputDims);
        if (context->enqueueV3(nullptr)) throw std::runtime_error("a run beyond the profile");
        inputDims.d[0] = 1;
        inputDims.d[0] = input.size() / (volume(inputDims) * elementSize(engine->getTensorDataType(inputName)));
        if (!context->setInputShape(inputName, inputDims) || context->inferShapes(0, nullptr) != 0) {
            throw std::runtime_error("the sizes are refused");
        }

        cudaStream_t stream;
        CHECK_CUDA(cudaStreamCreate(&stream));
        std::vector<void *> buffers;
        std::vector<char> result;
        for (int i = 0; i < engine->getNbIOTensors(); i++) {
            const char *name = engine->getIOTensorName(i);
            const size_t size = volume(context->getTensorShape(name)) * elementSize(engine->getTensorDataType(name));
            void *buffer = nullptr;
            CHECK_CUDA(cudaMalloc(&buffer, size));
            buffers.push_back(buffer);
            if (!context->setTensorAddress(name, buffer)) throw std::runtime_error("no address");
            if (engine->getTensorIOMode(name) == TensorIOMode::kINPUT) {
                CHECK_CUDA(cudaMemcpyAsync(buffer, input.data(), input.size(), cudaMemcpyHostToDevice, stream));
            } else {
                result.resize(size);
            }
        }
        Memory memory(buffers.back());
        const char *outputName = engine->getIOTensorName(engine->getNbIOTensors() - 1);
        if (!context->setOutputAllocator(outputName, &memory) || context->getMaxOutputSize(outputName) != int64_t(result.size())) {
            throw std::runtime_error("the allocator is refused");
        }
        // Repeated, as servers do; captured and replayed from the second run on, on a GPU.
        for (int i = 0; i < 4; i++) {
            if (!context->enqueueV3(stream)) throw std::runtime_error("enqueueV3 failed");
        }
        CHECK_CUDA(cudaMemcpyAsync(result.data(), buffers.back(), result.size(), cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        std::ofstream(argv[4], std::ios::binary).write(result.data(), result.size());

        if (memory.n_asked != 4 || memory.shape.d[0] != inputDims.d[0]) throw std::runtime_error("the allocator was not asked");
        if (std::string(engine->getTensorFormatDesc(outputName)).find("linear") == std::string::npos) throw std::runtime_error("no words");

        LayerTimes times;
        context->setProfiler(&times);
        if (!context->enqueueV3(stream)) throw std::runtime_error("a profiled run failed");
        CHECK_CUDA(cudaStreamSynchronize(stream));
        context->setProfiler(nullptr);
        const bool isOnHost = engine->getTensorLocation(inputName) == TensorLocation::kHOST;
        if (isOnHost && times.n != engine->getNbLayers()) throw std::runtime_error("layers are missing in the profile");
        auto inspector = std::unique_ptr<IEngineInspector>(engine->createEngineInspector());
        std::cout << inspector->getEngineInformation(LayerInformationFormat::kJSON) << std::endl;
        std::cout << "errors " << gLogger.counts[1] << ", on " << (isOnHost ? "host" : "device") << std::endl;
        context.reset();
        for (void *buffer : buffers) CHECK_CUDA(cudaFree(buffer));
        CHECK_CUDA(cudaStreamDestroy(stream));
    } catch (const std::exception &error) {
        std::cerr << "error: " << error.what() << std::endl;
        return 1;
    }
}
