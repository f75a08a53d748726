/* The GPU and its managed memory. */
#include <cuda_runtime_api.h>

#include "kernels/cuda/device/cuda_device.h"
#include "tests/gpu/managed.h"

/* Own kernels on a stream of their own, over memory that is in no cache. */
#define NOISE_ELEMENTS ((int64_t)16 << 20)
#define NOISE_KERNELS 4

static const struct kernels *noise_table;
static struct arena noise_memory;
static struct kernel_ctx noise_ctx = { .threads = 1 };

static void noise(bool on)
{
    enum err rc = ERR_OK;
    if (!on) {
        (void)cuda_memory.wait(noise_ctx.stream);
        return;
    }
    for (int i = 0; i < NOISE_KERNELS && rc == ERR_OK; i++)
        rc = noise_table->activation_forward(
            &noise_ctx, DTYPE_F32, ACTIVATION_GELU, NOISE_ELEMENTS,
            noise_memory.base, noise_memory.base);
}

static enum err start(const struct kernels **inner, void **stream)
{
    int device;
    TRY(kernels_find("cuda", "auto", inner));
    TRY(cuda_device_use(0, &device));
    TRY(cuda_memory.stream_create(false, stream));
    noise_table = *inner;
    TRY(cuda_memory.stream_create(false, &noise_ctx.stream));
    return cuda_memory.tensors_create((size_t)NOISE_ELEMENTS * sizeof(float),
                                      &noise_memory);
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

static enum err settle(void *stream)
{
    return cuda_memory.wait(stream);
}

const struct managed_source managed_source = {
    .start = start,
    .allocate = allocate,
    .release = release,
    .wait = settle,
    .noise = noise,
    .failed = managed_failed,
};
