/* Tensors in the memory of the GPU that the thread uses. */
#ifndef TESSERA_KERNELS_CUDA_MEMORY_H
#define TESSERA_KERNELS_CUDA_MEMORY_H

#include "kernels/kernel_memory.h"

extern const struct kernel_memory cuda_memory;

#endif
