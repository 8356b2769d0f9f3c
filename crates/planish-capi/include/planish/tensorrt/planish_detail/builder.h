// Networks, configurations and builds: IBuilder, INetworkDefinition, IBuilderConfig, IOptimizationProfile, over planish.h.
#ifndef PLANISH_TENSORRT_BUILDER_H
#define PLANISH_TENSORRT_BUILDER_H

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calibrator.h"
#include "engine.h"

namespace nvinfer1 {

// An input or an output of a network.
class ITensor : planish_trt::NoCopy {
public:
    ITensor(PlanishTensorInfo const &info, DataType type) : info_(info), type_(type) {}
    virtual ~ITensor() noexcept = default;
    char const *getName() const noexcept { return info_.name; }
    Dims getDimensions() const noexcept { return planish_trt::dims_of(info_.rank, info_.dims); }
    DataType getType() const noexcept { return type_; }
    bool isNetworkInput() const noexcept { return info_.is_input != 0; }
    bool isNetworkOutput() const noexcept { return info_.is_input == 0; }
    bool isShapeTensor() const noexcept { return false; }
    bool isExecutionTensor() const noexcept { return true; }
    TensorFormats getAllowedFormats() const noexcept { return 1U << static_cast<uint32_t>(TensorFormat::kLINEAR); }

private:
    PlanishTensorInfo info_;
    DataType type_;
};

// A network, read by a parser.
class INetworkDefinition : planish_trt::NoCopy {
public:
    explicit INetworkDefinition(NetworkDefinitionCreationFlags flags) noexcept : flags_(flags) {}
    virtual ~INetworkDefinition() noexcept { planish_model_free(model_); }
    void destroy() noexcept { delete this; }

    int32_t getNbInputs() const noexcept { return static_cast<int32_t>(n_inputs_); }
    int32_t getNbOutputs() const noexcept { return static_cast<int32_t>(tensors_.size() - n_inputs_); }
    ITensor *getInput(int32_t index) const noexcept {
        return index >= 0 && index < getNbInputs() ? tensors_[static_cast<size_t>(index)].get() : nullptr;
    }
    ITensor *getOutput(int32_t index) const noexcept {
        return index >= 0 && index < getNbOutputs() ? tensors_[n_inputs_ + static_cast<size_t>(index)].get() : nullptr;
    }
    void setName(char const *name) noexcept { name_ = name == nullptr ? "" : name; }
    char const *getName() const noexcept { return name_.c_str(); }
    bool hasImplicitBatchDimension() const noexcept { return false; }
    NetworkDefinitionCreationFlags getFlags() const noexcept { return flags_; }
    bool getFlag(NetworkDefinitionCreationFlag flag) const noexcept { return (flags_ >> static_cast<uint32_t>(flag)) & 1U; }
    void setErrorRecorder(IErrorRecorder *) noexcept {}

    // For the parser and the builder.
    PlanishModel *planishModel() const noexcept { return model_; }
    bool setPlanishModel(PlanishModel *model, ILogger *logger) {
        std::vector<std::unique_ptr<ITensor>> tensors;
        for (size_t i = 0; i < planish_model_tensor_count(model); i++) {
            PlanishTensorInfo info{};
            info.size = sizeof info;
            DataType type;
            bool const is_told = planish_trt::good(logger, planish_model_tensor(model, i, &info));
            if (!is_told || !planish_trt::has_type(info.element_type, type)) {
                std::string message = std::string("TensorRT has no element type for `") + (is_told ? info.name : "?") + "`";
                planish_trt::say(logger, ILogger::Severity::kERROR, message.c_str());
                planish_model_free(model);
                return false;
            }
            tensors.push_back(std::make_unique<ITensor>(info, type));
        }
        planish_model_free(model_);
        model_ = model;
        tensors_ = std::move(tensors);
        n_inputs_ = planish_model_input_count(model);
        return true;
    }

private:
    NetworkDefinitionCreationFlags flags_;
    PlanishModel *model_ = nullptr;
    std::vector<std::unique_ptr<ITensor>> tensors_;
    size_t n_inputs_ = 0;
    std::string name_;
};

// Ranges of sizes, by input.
class IOptimizationProfile : planish_trt::NoCopy {
public:
    virtual ~IOptimizationProfile() noexcept = default;
    bool setDimensions(char const *inputName, OptProfileSelector select, Dims const &dims) noexcept {
        if (inputName == nullptr || dims.nbDims < 0 || dims.nbDims > Dims::MAX_DIMS) {
            return false;
        }
        planish_trt::Range &range = ranges_[inputName];
        range.dims[static_cast<size_t>(select)] = dims;
        range.is_set[static_cast<size_t>(select)] = true;
        return true;
    }
    Dims getDimensions(char const *inputName, OptProfileSelector select) const noexcept {
        auto found = inputName == nullptr ? ranges_.end() : ranges_.find(inputName);
        return found == ranges_.end() ? planish_trt::dims_of(-1, nullptr) : found->second.dims[static_cast<size_t>(select)];
    }
    bool setExtraMemoryTarget(float) noexcept { return true; }
    // Whether every input that has sizes has all three, of one rank.
    bool isValid() const noexcept {
        return std::all_of(ranges_.begin(), ranges_.end(), [](std::pair<std::string const, planish_trt::Range> const &range) {
            return range.second.is_whole();
        });
    }
    std::map<std::string, planish_trt::Range> const &planishRanges() const noexcept { return ranges_; }

private:
    std::map<std::string, planish_trt::Range> ranges_;
};

// Measured times, as the bytes of a file of Planish's.
class ITimingCache : planish_trt::NoCopy {
public:
    explicit ITimingCache(std::string content) : content_(std::move(content)) {}
    virtual ~ITimingCache() noexcept = default;
    void destroy() noexcept { delete this; }
    IHostMemory *serialize() const noexcept { return new IHostMemory(content_); }
    // Takes the other's times where this one has none; `planish timing merge` joins files.
    bool combine(ITimingCache const &inputCache, bool) noexcept {
        content_ = content_.empty() ? inputCache.content_ : content_;
        return true;
    }
    bool reset() noexcept {
        content_.clear();
        return true;
    }
    std::string &planishContent() noexcept { return content_; }

private:
    std::string content_;
};

// What a build is asked for.
class IBuilderConfig : planish_trt::NoCopy {
public:
    virtual ~IBuilderConfig() noexcept = default;
    void destroy() noexcept { delete this; }

    void setFlags(BuilderFlags flags) noexcept { flags_ = flags; }
    BuilderFlags getFlags() const noexcept { return flags_; }
    void setFlag(BuilderFlag flag) noexcept { flags_ |= bit(flag); }
    void clearFlag(BuilderFlag flag) noexcept { flags_ &= ~bit(flag); }
    bool getFlag(BuilderFlag flag) const noexcept { return (flags_ & bit(flag)) != 0; }

    void setMemoryPoolLimit(MemoryPoolType pool, std::size_t poolSize) noexcept {
        if (pool == MemoryPoolType::kWORKSPACE) {
            workspace_ = poolSize;
        }
    }
    std::size_t getMemoryPoolLimit(MemoryPoolType pool) const noexcept {
        return pool == MemoryPoolType::kWORKSPACE ? workspace_ : 0;
    }
    void setMaxWorkspaceSize(std::size_t size) noexcept { workspace_ = size; }
    std::size_t getMaxWorkspaceSize() const noexcept { return workspace_; }

    // The builder's profile, which stays the builder's; -1 where it lacks sizes.
    int32_t addOptimizationProfile(IOptimizationProfile const *profile) noexcept {
        if (profile == nullptr || !profile->isValid()) {
            return -1;
        }
        profiles_.push_back(profile);
        return static_cast<int32_t>(profiles_.size()) - 1;
    }
    int32_t getNbOptimizationProfiles() const noexcept { return static_cast<int32_t>(profiles_.size()); }
    bool setCalibrationProfile(IOptimizationProfile const *profile) noexcept {
        calibration_profile_ = profile;
        return profile != nullptr && profile->isValid();
    }
    IOptimizationProfile const *getCalibrationProfile() noexcept { return calibration_profile_; }
    void setInt8Calibrator(IInt8Calibrator *calibrator) noexcept { calibrator_ = calibrator; }
    IInt8Calibrator *getInt8Calibrator() const noexcept { return calibrator_; }

    void setBuilderOptimizationLevel(int32_t level) noexcept { level_ = level; }
    int32_t getBuilderOptimizationLevel() noexcept { return level_; }
    void setProfilingVerbosity(ProfilingVerbosity verbosity) noexcept { verbosity_ = verbosity; }
    ProfilingVerbosity getProfilingVerbosity() const noexcept { return verbosity_; }

    ITimingCache *createTimingCache(void const *blob, std::size_t size) const noexcept {
        return new ITimingCache(blob == nullptr ? std::string() : std::string(static_cast<char const *>(blob), size));
    }
    // The caller's, which has to live as long as builds go by it.
    bool setTimingCache(ITimingCache const &cache, bool) noexcept {
        timing_cache_ = const_cast<ITimingCache *>(&cache);
        return true;
    }
    ITimingCache const *getTimingCache() const noexcept {
        if (timing_cache_ == nullptr) {
            own_cache_ = std::make_unique<ITimingCache>(std::string());
            timing_cache_ = own_cache_.get();
        }
        return timing_cache_;
    }
    void setProgressMonitor(IProgressMonitor *monitor) noexcept { monitor_ = monitor; }
    IProgressMonitor *getProgressMonitor() const noexcept { return monitor_; }
    void setEngineCapability(EngineCapability) noexcept {}
    EngineCapability getEngineCapability() const noexcept { return EngineCapability::kSTANDARD; }
    ITimingCache *planishTimingCache() const noexcept { return timing_cache_; }

    // Taken, and left alone.
    bool setTacticSources(TacticSources sources) noexcept {
        sources_ = sources;
        return true;
    }
    TacticSources getTacticSources() const noexcept { return sources_; }
    void setAvgTimingIterations(int32_t n) noexcept { n_timings_ = n; }
    int32_t getAvgTimingIterations() const noexcept { return n_timings_; }
    void setMinTimingIterations(int32_t n) noexcept { n_timings_ = n; }
    void setDefaultDeviceType(DeviceType) noexcept {}
    void setDLACore(int32_t) noexcept {}
    void setProfileStream(cudaStream_t) noexcept {}

    std::vector<IOptimizationProfile const *> const &planishProfiles() const noexcept { return profiles_; }

private:
    static BuilderFlags bit(BuilderFlag flag) noexcept { return 1U << static_cast<uint32_t>(flag); }
    BuilderFlags flags_ = bit(BuilderFlag::kTF32);
    std::size_t workspace_ = 0;
    int32_t level_ = 3;
    int32_t n_timings_ = 1;
    TacticSources sources_ = 0;
    ProfilingVerbosity verbosity_ = ProfilingVerbosity::kLAYER_NAMES_ONLY;
    std::vector<IOptimizationProfile const *> profiles_;
    IOptimizationProfile const *calibration_profile_ = nullptr;
    IInt8Calibrator *calibrator_ = nullptr;
    IProgressMonitor *monitor_ = nullptr;
    mutable ITimingCache *timing_cache_ = nullptr;
    mutable std::unique_ptr<ITimingCache> own_cache_;
};

} // namespace nvinfer1

namespace planish_trt {

// The file of a timing cache for the time of a build.
class KeptTimes : NoCopy {
public:
    explicit KeptTimes(nvinfer1::ITimingCache *cache) : cache_(cache) {
        if (cache == nullptr) {
            return;
        }
        char const *folder = std::getenv("TMPDIR");
        path_ = std::string(folder == nullptr ? "/tmp" : folder) + "/planish-times-XXXXXX";
        int const file = mkstemp(&path_[0]);
        if (file < 0) {
            path_.clear();
            return;
        }
        std::FILE *out = fdopen(file, "wb");
        std::string const &content = cache->planishContent();
        std::fwrite(content.data(), 1, content.size(), out);
        std::fclose(out);
        if (content.empty()) {
            std::remove(path_.c_str());
        }
    }
    ~KeptTimes() {
        if (path_.empty()) {
            return;
        }
        std::ifstream in(path_, std::ios::binary);
        if (in) {
            cache_->planishContent().assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        }
        std::remove(path_.c_str());
    }
    std::string const &path() const noexcept { return path_; }

private:
    nvinfer1::ITimingCache *cache_;
    std::string path_;
};

// Tells a monitor of the stages of a build.
class Watched : NoCopy {
public:
    explicit Watched(nvinfer1::IProgressMonitor *monitor) noexcept : monitor_(monitor) {}
    ~Watched() { finish(); }
    static int32_t tell(void *self, char const *stage, uint64_t done, uint64_t of) noexcept {
        return static_cast<Watched *>(self)->step(stage, done, of);
    }

private:
    int32_t step(char const *stage, uint64_t done, uint64_t of) noexcept {
        if (stage_ != stage) {
            finish();
            stage_ = stage;
            monitor_->phaseStart(stage, nullptr, static_cast<int32_t>(of == 0 ? 1 : of));
        }
        return done == 0 || monitor_->stepComplete(stage, static_cast<int32_t>(done - 1)) ? 0 : 1;
    }
    void finish() noexcept {
        if (!stage_.empty()) {
            monitor_->phaseFinish(stage_.c_str());
            stage_.clear();
        }
    }

    nvinfer1::IProgressMonitor *monitor_;
    std::string stage_;
};

} // namespace planish_trt

namespace nvinfer1 {

// Builds engines.
class IBuilder : planish_trt::NoCopy {
public:
    explicit IBuilder(ILogger &logger) noexcept : logger_(&logger) {}
    virtual ~IBuilder() noexcept = default;
    void destroy() noexcept { delete this; }

    INetworkDefinition *createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept { return new INetworkDefinition(flags); }
    IBuilderConfig *createBuilderConfig() noexcept { return new IBuilderConfig; }
    // Profiles are the builder's, as in TensorRT.
    IOptimizationProfile *createOptimizationProfile() noexcept {
        profiles_.push_back(std::make_unique<IOptimizationProfile>());
        return profiles_.back().get();
    }

    // The bytes of a plan; nullptr where the logger was told why not.
    IHostMemory *buildSerializedNetwork(INetworkDefinition &network, IBuilderConfig &config) noexcept {
        PlanishPlan *plan = build(network, config);
        PlanishBytes *bytes = nullptr;
        bool const is_built = plan != nullptr && planish_trt::good(logger_, planish_plan_bytes(plan, &bytes));
        planish_plan_free(plan);
        return is_built ? new IHostMemory(bytes) : nullptr;
    }
    ICudaEngine *buildEngineWithConfig(INetworkDefinition &network, IBuilderConfig &config) noexcept {
        PlanishPlan *plan = build(network, config);
        if (plan == nullptr) {
            return nullptr;
        }
        auto shared = std::make_shared<planish_trt::Engine>(logger_, plan);
        return shared->open() ? new ICudaEngine(std::move(shared)) : nullptr;
    }
    bool isNetworkSupported(INetworkDefinition const &network, IBuilderConfig const &) const noexcept {
        return network.planishModel() != nullptr;
    }

    // All may be asked for; what the device computes in halves or integers is the build's to find out.
    bool platformHasFastFp16() const noexcept { return true; }
    bool platformHasFastInt8() const noexcept { return true; }
    bool platformHasTf32() const noexcept { return true; }
    int32_t getNbDLACores() const noexcept { return 0; }
    int32_t getMaxDLABatchSize() const noexcept { return 0; }
    void setMaxBatchSize(int32_t size) noexcept { max_batch_size_ = size; }
    int32_t getMaxBatchSize() const noexcept { return max_batch_size_; }
    bool setMaxThreads(int32_t) noexcept { return true; }
    ILogger *getLogger() const noexcept { return logger_; }
    void setGpuAllocator(IGpuAllocator *) noexcept {}
    void setErrorRecorder(IErrorRecorder *) noexcept {}
    void reset() noexcept { profiles_.clear(); }

private:
    using Severity = ILogger::Severity;

    static void log(void *logger, PlanishSeverity severity, char const *message) noexcept {
        // Errors are given by the call itself.
        if (severity > PLANISH_SEVERITY_ERROR) {
            static_cast<ILogger *>(logger)->log(static_cast<Severity>(severity), message);
        }
    }

    // Warns, the first time that there is this to say.
    void say_once(std::string const &message) {
        if (std::find(said_.begin(), said_.end(), message) == said_.end()) {
            said_.push_back(message);
            logger_->log(Severity::kWARNING, message.c_str());
        }
    }

    char const *precision(IBuilderConfig const &config, bool integers) {
        if (config.getFlag(BuilderFlag::kINT8) && integers) {
            if (config.getInt8Calibrator() != nullptr) {
                return "int8";
            }
            say_once("BuilderFlag::kINT8 without a calibrator changes nothing: models with Q/DQ keep their integers");
        }
        return config.getFlag(BuilderFlag::kFP16) ? "fp16" : config.getFlag(BuilderFlag::kBF16) ? "bf16" : "fp32";
    }

    bool configure(PlanishBuilder *builder, INetworkDefinition &network, IBuilderConfig &config, bool integers) {
        for (BuilderFlag flag : {BuilderFlag::kDEBUG, BuilderFlag::kGPU_FALLBACK, BuilderFlag::kSTRICT_TYPES, BuilderFlag::kREFIT,
                                 BuilderFlag::kSPARSE_WEIGHTS, BuilderFlag::kSAFETY_SCOPE,
                                 BuilderFlag::kOBEY_PRECISION_CONSTRAINTS, BuilderFlag::kPREFER_PRECISION_CONSTRAINTS,
                                 BuilderFlag::kDIRECT_IO, BuilderFlag::kREJECT_EMPTY_ALGORITHMS, BuilderFlag::kFP8}) {
            if (config.getFlag(flag)) {
                say_once("the builder's flag " + std::to_string(static_cast<int32_t>(flag)) + " is not honoured");
            }
        }
        auto set = [&](char const *key, std::string const &value) {
            return planish_trt::good(logger_, planish_builder_set(builder, key, value.c_str()));
        };
        std::string const wanted = precision(config, integers);
        if (!planish_trt::good(logger_, planish_builder_set_log(builder, log, logger_)) || !set("precision", wanted) ||
            !set("tune-level", std::to_string(config.getBuilderOptimizationLevel())) ||
            (config.getMaxWorkspaceSize() != 0 && !set("workspace", std::to_string(config.getMaxWorkspaceSize())))) {
            return false;
        }
        size_t n_profiles = 0;
        for (IOptimizationProfile const *profile : config.planishProfiles()) {
            for (auto const &range : profile->planishRanges()) {
                if (!planish_trt::good(logger_, range.second.add(builder, n_profiles, range.first))) {
                    return false;
                }
            }
            n_profiles += profile->planishRanges().empty() ? 0 : 1;
        }
        if (wanted != "int8") {
            return true;
        }
        IOptimizationProfile const *profile = config.getCalibrationProfile();
        if (profile == nullptr && !config.planishProfiles().empty()) {
            profile = config.planishProfiles().front();
        }
        planish_trt::Batches batches{config.getInt8Calibrator(), network.planishModel(), logger_,
                                     profile == nullptr ? nullptr : &profile->planishRanges()};
        PlanishCalibration *calibration = batches.calibration();
        bool const is_set = calibration != nullptr &&
                            planish_trt::good(logger_, planish_builder_set_calibration(builder, calibration));
        planish_calibration_free(calibration);
        return is_set;
    }

    // A model without a layer for integers is built in the widest type that is allowed, as TensorRT does.
    PlanishPlan *build(INetworkDefinition &network, IBuilderConfig &config, bool integers = true) {
        if (network.planishModel() == nullptr) {
            logger_->log(Severity::kERROR, "the network is empty; read a model with a parser");
            return nullptr;
        }
        PlanishBuilder *builder = nullptr;
        PlanishPlan *plan = nullptr;
        planish_trt::KeptTimes times{config.getFlag(BuilderFlag::kDISABLE_TIMING_CACHE) ? nullptr : config.planishTimingCache()};
        planish_trt::Watched watched{config.getProgressMonitor()};
        auto accompany = [&] {
            bool const is_kept = times.path().empty() ||
                                 planish_trt::good(logger_, planish_builder_set(builder, "timing-cache", times.path().c_str()));
            return is_kept && (config.getProgressMonitor() == nullptr ||
                               planish_trt::good(logger_, planish_builder_set_progress(builder, &planish_trt::Watched::tell, &watched)));
        };
        if (planish_trt::good(logger_, planish_builder_new(network.planishModel(), &builder)) &&
            configure(builder, network, config, integers) && accompany()) {
            PlanishStatus const status = planish_builder_build(builder, &plan);
            std::string const why = status == PLANISH_STATUS_REFUSED ? planish_error() : "";
            if (integers && config.getFlag(BuilderFlag::kINT8) && why.find("can be quantized") != std::string::npos) {
                logger_->log(Severity::kWARNING, (why + "; it is built without integers").c_str());
                planish_builder_free(builder);
                return build(network, config, false);
            }
            planish_trt::good(logger_, status);
        }
        planish_builder_free(builder);
        return plan;
    }

    ILogger *logger_;
    int32_t max_batch_size_ = 1;
    std::vector<std::unique_ptr<IOptimizationProfile>> profiles_;
    std::vector<std::string> said_;
};

inline IBuilder *createInferBuilder(ILogger &logger) noexcept { return new IBuilder(logger); }

} // namespace nvinfer1

#endif // PLANISH_TENSORRT_BUILDER_H
