// A client of TensorRT 8, as its users wrote them: destroy(), bindings by number, enqueueV2 and executeV2, workspace by its old
// name, and INT8 with a calibrator that keeps a cache. `tensorrt8 MODEL.onnx CACHE INPUT RESULT`
#include <cassert>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "NvInfer.h"
#include "NvInferPlugin.h"
#include "NvOnnxParser.h"
#include "cuda_runtime.h"

class Logger : public nvinfer1::ILogger {
    void log(Severity severity, nvinfer1::AsciiChar const *msg) noexcept override {
        if (severity < Severity::kINFO) fprintf(stderr, "%s\n", msg);
    }
} gLogger;

struct Destroy {
    template <class T> void operator()(T *object) const {
        if (object) object->destroy();
    }
};
template <class T> using Unique = std::unique_ptr<T, Destroy>;

#define CUDA(call) \
    if ((call) != cudaSuccess) { \
        fprintf(stderr, "%s failed\n", #call); \
        return 1; \
    }
#define EXPECT(condition) \
    if (!(condition)) { \
        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
        return 1; \
    }

class Calibrator : public nvinfer1::IInt8EntropyCalibrator2 {
public:
    Calibrator(const std::vector<float> &rows, int features, std::string cache) : mRows(rows), mFeatures(features), mCache(cache) {
        cudaMalloc(&mDevice, features * sizeof(float));
    }
    ~Calibrator() override { cudaFree(mDevice); }
    int getBatchSize() const noexcept override { return 1; }
    bool getBatch(void *bindings[], const char *names[], int nbBindings) noexcept override {
        if (nbBindings != 1 || std::strcmp(names[0], "x") != 0 || (mNext + 1) * mFeatures > mRows.size()) return false;
        cudaMemcpy(mDevice, &mRows[mNext++ * mFeatures], mFeatures * sizeof(float), cudaMemcpyHostToDevice);
        bindings[0] = mDevice;
        return true;
    }
    const void *readCalibrationCache(std::size_t &length) noexcept override {
        std::ifstream file(mCache, std::ios::binary);
        mContent.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        length = mContent.size();
        return length ? mContent.data() : nullptr;
    }
    void writeCalibrationCache(const void *cache, std::size_t length) noexcept override {
        std::ofstream(mCache, std::ios::binary).write(static_cast<const char *>(cache), length);
        mWritten++;
    }
    int mWritten = 0;

private:
    const std::vector<float> &mRows;
    std::size_t mFeatures, mNext = 0;
    std::string mCache;
    std::vector<char> mContent;
    void *mDevice = nullptr;
};

static Unique<nvinfer1::ICudaEngine> build(const char *onnx, nvinfer1::IInt8Calibrator *calibrator) {
    Unique<nvinfer1::IBuilder> builder(nvinfer1::createInferBuilder(gLogger));
    const auto explicitBatch = 1U << static_cast<uint32_t>(nvinfer1::NetworkDefinitionCreationFlag::kEXPLICIT_BATCH);
    Unique<nvinfer1::INetworkDefinition> network(builder->createNetworkV2(explicitBatch));
    Unique<nvonnxparser::IParser> parser(nvonnxparser::createParser(*network, gLogger));
    std::ifstream file(onnx, std::ios::binary);
    std::vector<char> model((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!parser->parse(model.data(), model.size())) return nullptr;
    assert(network->getNbInputs() == 1 && network->getNbOutputs() == 1);
    Unique<nvinfer1::IBuilderConfig> config(builder->createBuilderConfig());
    builder->setMaxBatchSize(16);
    config->setMaxWorkspaceSize(1 << 28);
    config->setBuilderOptimizationLevel(0);
    if (calibrator) {
        config->setFlag(nvinfer1::BuilderFlag::kINT8);
        config->setInt8Calibrator(calibrator);
    }
    nvinfer1::IOptimizationProfile *profile = builder->createOptimizationProfile();
    const char *name = network->getInput(0)->getName();
    profile->setDimensions(name, nvinfer1::OptProfileSelector::kMIN, nvinfer1::Dims2(1, 8));
    profile->setDimensions(name, nvinfer1::OptProfileSelector::kOPT, nvinfer1::Dims2(calibrator ? 1 : 4, 8));
    profile->setDimensions(name, nvinfer1::OptProfileSelector::kMAX, nvinfer1::Dims2(16, 8));
    config->addOptimizationProfile(profile);
    return Unique<nvinfer1::ICudaEngine>(builder->buildEngineWithConfig(*network, *config));
}

int main(int argc, char **argv) {
    EXPECT(argc == 5);
    EXPECT(initLibNvInferPlugins(&gLogger, ""));
    std::ifstream in(argv[3], std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::vector<float> input(bytes.size() / sizeof(float));
    std::memcpy(input.data(), bytes.data(), bytes.size());
    const int rows = static_cast<int>(input.size()) / 8;

    Unique<nvinfer1::ICudaEngine> built = build(argv[1], nullptr);
    EXPECT(built != nullptr);
    Unique<nvinfer1::IHostMemory> plan(built->serialize());
    built.reset();
    Unique<nvinfer1::IRuntime> runtime(nvinfer1::createInferRuntime(gLogger));
    Unique<nvinfer1::ICudaEngine> engine(runtime->deserializeCudaEngine(plan->data(), plan->size(), nullptr));
    EXPECT(engine != nullptr && engine->getNbBindings() == 2);
    const int inputIndex = engine->getBindingIndex("x"), outputIndex = engine->getBindingIndex("y");
    EXPECT(engine->bindingIsInput(inputIndex) && !engine->bindingIsInput(outputIndex));
    EXPECT(engine->getBindingDataType(inputIndex) == nvinfer1::DataType::kFLOAT);
    EXPECT(engine->getProfileDimensions(inputIndex, 0, nvinfer1::OptProfileSelector::kMAX).d[0] == 16);
    Unique<nvinfer1::IExecutionContext> context(engine->createExecutionContext());
    EXPECT(!context->allInputDimensionsSpecified());
    EXPECT(context->setBindingDimensions(inputIndex, nvinfer1::Dims2(rows, 8)));
    EXPECT(context->allInputDimensionsSpecified());
    nvinfer1::Dims dims = context->getBindingDimensions(outputIndex);
    int count = 1;
    for (int i = 0; i < dims.nbDims; ++i) count *= dims.d[i];
    EXPECT(dims.nbDims == 2 && count == rows * 3);

    void *buffers[2] = {};
    CUDA(cudaMalloc(&buffers[inputIndex], input.size() * sizeof(float)));
    CUDA(cudaMalloc(&buffers[outputIndex], count * sizeof(float)));
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    std::vector<float> queued(count), executed(count), integers[2];
    CUDA(cudaMemcpyAsync(buffers[inputIndex], input.data(), input.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
    EXPECT(context->enqueueV2(buffers, stream, nullptr));
    CUDA(cudaMemcpyAsync(queued.data(), buffers[outputIndex], count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < 3; ++i) {
        CUDA(cudaMemset(buffers[outputIndex], 0, count * sizeof(float)));
        CUDA(cudaMemcpy(buffers[inputIndex], input.data(), input.size() * sizeof(float), cudaMemcpyHostToDevice));
        EXPECT(context->executeV2(buffers));
        CUDA(cudaMemcpy(executed.data(), buffers[outputIndex], count * sizeof(float), cudaMemcpyDeviceToHost));
        EXPECT(queued == executed);
    }
    void *missing[2] = {nullptr, buffers[outputIndex]};
    EXPECT(!context->executeV2(missing));

    // INT8: the first build writes the cache, the second reads it, and both engines are the same.
    for (int i = 0; i < 2; ++i) {
        Calibrator calibrator(input, 8, argv[2]);
        Unique<nvinfer1::ICudaEngine> quantized = build(argv[1], &calibrator);
        EXPECT(quantized != nullptr && calibrator.mWritten == (i == 0));
        Unique<nvinfer1::IExecutionContext> running(quantized->createExecutionContext());
        EXPECT(running->setBindingDimensions(inputIndex, nvinfer1::Dims2(rows, 8)) && running->executeV2(buffers));
        integers[i].resize(count);
        CUDA(cudaMemcpy(integers[i].data(), buffers[outputIndex], count * sizeof(float), cudaMemcpyDeviceToHost));
    }
    EXPECT(integers[0] == integers[1]);
    for (int i = 0; i < count; ++i) EXPECT(integers[0][i] - queued[i] < 0.25F && queued[i] - integers[0][i] < 0.25F);
    std::ofstream(argv[4], std::ios::binary).write(reinterpret_cast<const char *>(queued.data()), count * sizeof(float));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(buffers[0]));
    CUDA(cudaFree(buffers[1]));
    return 0;
}
