/* The GPU and its managed memory. */
#include <cuda_runtime_api.h>

#include "kernels/cuda_device.h"
#include "tests/gpu/managed.h"

static enum err start(const struct kernels **inner, void **stream)
{
    enum err rc = ERR_OK;
    int device;
    TRY(kernels_find("cuda", "auto", inner));
    TRY(cuda_device_use(0, &device));
    TRY(cuda_device_stream_create(false, stream));
out:
    return rc;
}

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    cudaError_t code = cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal);
    return code == cudaSuccess ? memory : NULL;
}

static void release(void *memory)
{
    (void)cudaFree(memory);
}

const struct managed_source managed_source = {
    .start = start,
    .allocate = allocate,
    .release = release,
    .wait = cuda_device_stream_wait,
    .failed = managed_failed,
};
