// nvonnxparser: ONNX models into networks, over planish.h.
#ifndef NV_ONNX_PARSER_H
#define NV_ONNX_PARSER_H

#include <string>
#include <vector>

#include "NvInfer.h"

#define NV_ONNX_PARSER_MAJOR 0
#define NV_ONNX_PARSER_MINOR 1
#define NV_ONNX_PARSER_PATCH 0

namespace nvonnxparser {

enum class ErrorCode : int {
    kSUCCESS = 0, kINTERNAL_ERROR = 1, kMEM_ALLOC_FAILED = 2, kMODEL_DESERIALIZE_FAILED = 3,
    kINVALID_VALUE = 4, kINVALID_GRAPH = 5, kINVALID_NODE = 6, kUNSUPPORTED_GRAPH = 7, kUNSUPPORTED_NODE =
    8
};

// Why a model could not be read; the words name the node.
class IParserError {
public:
    IParserError(ErrorCode code, std::string description) : code_(code), description_(std::move(description)) {}
    virtual ~IParserError() = default;
    ErrorCode code() const noexcept { return code_; }
    char const *desc() const noexcept { return description_.c_str(); }
    char const *file() const noexcept { return ""; }
    int line() const noexcept { return 0; }
    char const *func() const noexcept { return ""; }
    int node() const noexcept { return -1; }

private:
    ErrorCode code_;
    std::string description_;
};

// Reads ONNX models into a network.
class IParser : planish_trt::NoCopy {
public:
    IParser(nvinfer1::INetworkDefinition &network, nvinfer1::ILogger &logger) noexcept : network_(&network), logger_(&logger) {}
    virtual ~IParser() noexcept = default;
    void destroy() noexcept { delete this; }

    // Reads the bytes of a model; `path` is its file, beside which external data is looked for.
    bool parse(void const *bytes, std::size_t size, char const *path = nullptr) noexcept {
        PlanishModel *model = nullptr;
        PlanishStatus status = path != nullptr
                                   ? planish_model_open(path, &model)
                                   : planish_model_from_bytes(static_cast<uint8_t const *>(bytes), size, &model);
        return take(status, model);
    }
    bool parseFromFile(char const *path, int) noexcept {
        PlanishModel *model = nullptr;
        PlanishStatus status = planish_model_open(path, &model);
        return take(status, model);
    }
    int getNbErrors() const noexcept { return static_cast<int>(errors_.size()); }
    IParserError const *getError(int index) const noexcept {
        return index >= 0 && index < getNbErrors() ? &errors_[static_cast<size_t>(index)] : nullptr;
    }
    void clearErrors() noexcept { errors_.clear(); }

private:
    bool take(PlanishStatus status, PlanishModel *model) {
        if (planish_trt::good(logger_, status)) {
            if (network_->setPlanishModel(model, logger_)) {
                return true;
            }
            errors_.emplace_back(ErrorCode::kUNSUPPORTED_GRAPH, "an input or output has an element type that TensorRT has not");
            return false;
        }
        errors_.emplace_back(status == PLANISH_STATUS_UNSUPPORTED ? ErrorCode::kUNSUPPORTED_NODE
                                                                  : ErrorCode::kMODEL_DESERIALIZE_FAILED,
                             planish_error());
        return false;
    }

    nvinfer1::INetworkDefinition *network_;
    nvinfer1::ILogger *logger_;
    std::vector<IParserError> errors_;
};

inline IParser *createParser(nvinfer1::INetworkDefinition &network, nvinfer1::ILogger &logger) noexcept {
    return new IParser(network, logger);
}

} // namespace nvonnxparser

#endif // NV_ONNX_PARSER_H
