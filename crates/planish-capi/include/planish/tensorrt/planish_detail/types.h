// Sizes, element types, enumerations and the classes that users derive from: nvinfer1's names and numbers, over planish.h.
#ifndef PLANISH_TENSORRT_TYPES_H
#define PLANISH_TENSORRT_TYPES_H

#include <cstddef>
#include <cstdint>

#include "../../../planish.h"

// The generation of the interface: 10, unless a program asks for 8, whose sizes are of 32 bits.
#ifndef PLANISH_TENSORRT_MAJOR
#define PLANISH_TENSORRT_MAJOR 10
#endif
#define NV_TENSORRT_MAJOR PLANISH_TENSORRT_MAJOR
#if PLANISH_TENSORRT_MAJOR >= 10
#define NV_TENSORRT_MINOR 0
#else
#define NV_TENSORRT_MINOR 6
#endif
#define NV_TENSORRT_PATCH 0
#define NV_TENSORRT_BUILD 0
#if PLANISH_TENSORRT_MAJOR >= 10
#define NV_TENSORRT_VERSION (NV_TENSORRT_MAJOR * 10000 + NV_TENSORRT_MINOR * 100 + NV_TENSORRT_PATCH)
#else
#define NV_TENSORRT_VERSION (NV_TENSORRT_MAJOR * 1000 + NV_TENSORRT_MINOR * 100 + NV_TENSORRT_PATCH)
#endif

#define TRT_DEPRECATED
#define TENSORRTAPI

// What CUDA calls its streams and events; the same declarations as in its own headers.
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

namespace nvinfer1 {

using AsciiChar = char;

// Sizes; -1 is one that a run decides.
class Dims {
public:
#if PLANISH_TENSORRT_MAJOR >= 10
    using Size = int64_t;
#else
    using Size = int32_t;
#endif
    static constexpr int32_t MAX_DIMS{8};
    int32_t nbDims;
    Size d[MAX_DIMS];
};
using Dims32 = Dims;
using Dims64 = Dims;

class Dims2 : public Dims {
public:
    Dims2() : Dims2(0, 0) {}
    Dims2(Size d0, Size d1) : Dims{2, {d0, d1}} {}
};

class DimsHW : public Dims2 {
public:
    DimsHW() : Dims2() {}
    DimsHW(Size height, Size width) : Dims2(height, width) {}
    Size &h() { return d[0]; }
    Size h() const { return d[0]; }
    Size &w() { return d[1]; }
    Size w() const { return d[1]; }
};

class Dims3 : public Dims {
public:
    Dims3() : Dims3(0, 0, 0) {}
    Dims3(Size d0, Size d1, Size d2) : Dims{3, {d0, d1, d2}} {}
};

class Dims4 : public Dims {
public:
    Dims4() : Dims4(0, 0, 0, 0) {}
    Dims4(Size d0, Size d1, Size d2, Size d3) : Dims{4, {d0, d1, d2, d3}} {}
};

enum class DataType : int32_t {
    kFLOAT = 0, kHALF = 1, kINT8 = 2, kINT32 = 3, kBOOL = 4, kUINT8 = 5, kFP8 = 6, kBF16 = 7, kINT64 = 8,
    kINT4 = 9
};

enum class TensorFormat : int32_t { kLINEAR = 0 };
using TensorFormats = uint32_t;

enum class TensorLocation : int32_t { kDEVICE = 0, kHOST = 1 };

enum class TensorIOMode : int32_t { kNONE = 0, kINPUT = 1, kOUTPUT = 2 };

enum class OptProfileSelector : int32_t { kMIN = 0, kOPT = 1, kMAX = 2 };

enum class ProfilingVerbosity : int32_t { kLAYER_NAMES_ONLY = 0, kNONE = 1, kDETAILED = 2 };

enum class LayerInformationFormat : int32_t { kONELINE = 0, kJSON = 1 };

enum class NetworkDefinitionCreationFlag : int32_t { kEXPLICIT_BATCH = 0, kSTRONGLY_TYPED = 1 };
using NetworkDefinitionCreationFlags = uint32_t;

enum class BuilderFlag : int32_t {
    kFP16 = 0, kINT8 = 1, kDEBUG = 2, kGPU_FALLBACK = 3, kSTRICT_TYPES = 4, kREFIT = 5,
    kDISABLE_TIMING_CACHE = 6, kTF32 = 7, kSPARSE_WEIGHTS = 8, kSAFETY_SCOPE = 9,
    kOBEY_PRECISION_CONSTRAINTS = 10, kPREFER_PRECISION_CONSTRAINTS = 11, kDIRECT_IO = 12,
    kREJECT_EMPTY_ALGORITHMS = 13, kFP8 = 17, kBF16 = 18
};
using BuilderFlags = uint32_t;

enum class MemoryPoolType : int32_t {
    kWORKSPACE = 0, kDLA_MANAGED_SRAM = 1, kDLA_LOCAL_DRAM = 2, kDLA_GLOBAL_DRAM = 3, kTACTIC_DRAM = 4,
    kTACTIC_SHARED_MEMORY = 5
};

enum class DeviceType : int32_t { kGPU = 0, kDLA = 1 };

enum class TacticSource : int32_t {
    kCUBLAS = 0, kCUBLAS_LT = 1, kCUDNN = 2, kEDGE_MASK_CONVOLUTIONS = 3, kJIT_CONVOLUTIONS = 4
};
using TacticSources = uint32_t;

enum class EngineCapability : int32_t { kSTANDARD = 0, kSAFETY = 1, kDLA_STANDALONE = 2 };

enum class CalibrationAlgoType : int32_t {
    kLEGACY_CALIBRATION = 0, kENTROPY_CALIBRATION = 1, kENTROPY_CALIBRATION_2 = 2, kMINMAX_CALIBRATION = 3
};

// Is given every message.
class ILogger {
public:
    enum class Severity : int32_t { kINTERNAL_ERROR = 0, kERROR = 1, kWARNING = 2, kINFO = 3, kVERBOSE = 4 };
    virtual void log(Severity severity, AsciiChar const *msg) noexcept = 0;
    ILogger() = default;
    virtual ~ILogger() = default;
};

// Is told how far a build is: its stages one after another; false from stepComplete ends it.
class IProgressMonitor {
public:
    virtual void phaseStart(char const *phaseName, char const *parentPhase, int32_t nbSteps) noexcept = 0;
    virtual bool stepComplete(char const *phaseName, int32_t step) noexcept = 0;
    virtual void phaseFinish(char const *phaseName) noexcept = 0;
    virtual ~IProgressMonitor() noexcept = default;
};

// Gives memory for an output before a run.
class IOutputAllocator {
public:
    virtual void *reallocateOutput(char const *tensorName, void *currentMemory, uint64_t size, uint64_t alignment) noexcept {
        return reallocateOutputAsync(tensorName, currentMemory, size, alignment, nullptr);
    }
    virtual void *reallocateOutputAsync(char const *, void *, uint64_t, uint64_t, cudaStream_t) noexcept { return nullptr; }
    virtual void notifyShape(char const *tensorName, Dims const &dims) noexcept = 0;
    virtual ~IOutputAllocator() noexcept = default;
};

// Is told the time of every layer.
class IProfiler {
public:
    virtual void reportLayerTime(char const *layerName, float ms) noexcept = 0;
    virtual ~IProfiler() noexcept = default;
};

// Gives batches of samples.
class IInt8Calibrator {
public:
    virtual int32_t getBatchSize() const noexcept = 0;
    virtual bool getBatch(void *bindings[], char const *names[], int32_t nbBindings) noexcept = 0;
    virtual void const *readCalibrationCache(std::size_t &length) noexcept = 0;
    virtual void writeCalibrationCache(void const *ptr, std::size_t length) noexcept = 0;
    virtual CalibrationAlgoType getAlgorithm() noexcept = 0;
    virtual ~IInt8Calibrator() noexcept = default;
};

class IInt8EntropyCalibrator : public IInt8Calibrator {
public:
    CalibrationAlgoType getAlgorithm() noexcept override { return CalibrationAlgoType::kENTROPY_CALIBRATION; }
};

class IInt8EntropyCalibrator2 : public IInt8Calibrator {
public:
    CalibrationAlgoType getAlgorithm() noexcept override { return CalibrationAlgoType::kENTROPY_CALIBRATION_2; }
};

class IInt8MinMaxCalibrator : public IInt8Calibrator {
public:
    CalibrationAlgoType getAlgorithm() noexcept override { return CalibrationAlgoType::kMINMAX_CALIBRATION; }
};

// Thresholds by a quantile; here by 99.99 percent of all magnitudes, whatever `getQuantile` says.
class IInt8LegacyCalibrator : public IInt8Calibrator {
public:
    CalibrationAlgoType getAlgorithm() noexcept override { return CalibrationAlgoType::kLEGACY_CALIBRATION; }
    virtual double getQuantile() const noexcept = 0;
    virtual double getRegressionCutoff() const noexcept = 0;
    virtual void const *readHistogramCache(std::size_t &length) noexcept = 0;
    virtual void writeHistogramCache(void const *ptr, std::size_t length) noexcept = 0;
};

// May be given; nothing is recorded or allocated through them.
class IErrorRecorder;
class IGpuAllocator;

} // namespace nvinfer1

// What the classes share; nothing of it is for users.
namespace planish_trt {

class NoCopy {
public:
    NoCopy() = default;
    NoCopy(NoCopy const &) = delete;
    NoCopy &operator=(NoCopy const &) = delete;

protected:
    ~NoCopy() = default;
};

using Severity = nvinfer1::ILogger::Severity;

inline void say(nvinfer1::ILogger *logger, Severity severity, char const *message) noexcept {
    if (logger != nullptr) {
        logger->log(severity, message);
    }
}

// Whether a call went well; if not, the logger has the library's words.
inline bool good(nvinfer1::ILogger *logger, PlanishStatus status) noexcept {
    if (status == PLANISH_STATUS_OK) {
        return true;
    }
    say(logger, status == PLANISH_STATUS_FAILED ? Severity::kINTERNAL_ERROR : Severity::kERROR, planish_error());
    return false;
}

// Sizes as nvinfer1 has them; `nbDims` is -1 where there are more than it holds, or nobody knows how many.
inline nvinfer1::Dims dims_of(int32_t rank, int64_t const *sizes) noexcept {
    nvinfer1::Dims dims{};
    dims.nbDims = rank > nvinfer1::Dims::MAX_DIMS ? -1 : rank;
    for (int32_t axis = 0; axis < dims.nbDims; axis++) {
        dims.d[axis] = static_cast<nvinfer1::Dims::Size>(sizes[axis]);
    }
    return dims;
}

inline bool has_type(PlanishType type, nvinfer1::DataType &own) noexcept {
    using nvinfer1::DataType;
    switch (type) {
    case PLANISH_TYPE_FLOAT32: own = DataType::kFLOAT; return true;
    case PLANISH_TYPE_FLOAT16: own = DataType::kHALF; return true;
    case PLANISH_TYPE_INT8: own = DataType::kINT8; return true;
    case PLANISH_TYPE_INT32: own = DataType::kINT32; return true;
    case PLANISH_TYPE_BOOL: own = DataType::kBOOL; return true;
    case PLANISH_TYPE_UINT8: own = DataType::kUINT8; return true;
    case PLANISH_TYPE_FLOAT8E4M3FN: own = DataType::kFP8; return true;
    case PLANISH_TYPE_BFLOAT16: own = DataType::kBF16; return true;
    case PLANISH_TYPE_INT64: own = DataType::kINT64; return true;
    case PLANISH_TYPE_INT4: own = DataType::kINT4; return true;
    default: return false;
    }
}

} // namespace planish_trt

namespace nvinfer1 {

// Bytes of a plan, or of a cache.
class IHostMemory : planish_trt::NoCopy {
public:
    explicit IHostMemory(PlanishBytes *bytes) noexcept : bytes_(bytes) {}
    explicit IHostMemory(std::string text) : text_(std::move(text)) {}
    virtual ~IHostMemory() noexcept { planish_bytes_free(bytes_); }
    void *data() const noexcept {
        return bytes_ == nullptr ? const_cast<char *>(text_.data())
                                 : static_cast<void *>(const_cast<uint8_t *>(planish_bytes_data(bytes_)));
    }
    std::size_t size() const noexcept { return bytes_ == nullptr ? text_.size() : planish_bytes_size(bytes_); }
    DataType type() const noexcept { return DataType::kINT8; }
    void destroy() noexcept { delete this; }

private:
    PlanishBytes *bytes_ = nullptr;
    std::string text_;
};

} // namespace nvinfer1

inline int32_t getInferLibVersion() noexcept { return NV_TENSORRT_VERSION; }

#endif // PLANISH_TENSORRT_TYPES_H
