// Part of NvInfer.h.
#include "NvInfer.h"
