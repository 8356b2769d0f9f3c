// There are no plugins of TensorRT's to look for: says that all is well.
#ifndef NV_INFER_PLUGIN_H
#define NV_INFER_PLUGIN_H

#include "NvInfer.h"

inline bool initLibNvInferPlugins(void *, char const *) noexcept { return true; }

#endif // NV_INFER_PLUGIN_H
