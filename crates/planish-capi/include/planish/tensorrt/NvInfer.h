// TensorRT's class names and call styles over Planish: what runs are plans of Planish's, on the CPU or on a GPU.
// docs/tensorrt-cpp.md says what is there, and what is not. The names and signatures are TensorRT's, the code is not.
#ifndef NV_INFER_H
#define NV_INFER_H

#include "planish_detail/builder.h"
#include "planish_detail/engine.h"
#include "planish_detail/types.h"

#endif // NV_INFER_H
