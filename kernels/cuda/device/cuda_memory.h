/* Tensors in the memory of the GPU that the thread uses. */
#pragma once

#include "kernels/kernel_memory.h"

extern const struct kernel_memory cuda_memory;
