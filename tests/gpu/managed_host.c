/* The processor in the GPU's place: the CUDA kernels if the program is linked
 * with the emulator, which has bf16, otherwise the CPU's best table. */
#include <stdlib.h>

#include "tests/gpu/managed.h"

extern const struct kernels cuda_table_emulated __attribute__((weak));

const struct kernels *const *__real_kernels_all(void);

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);

static enum err start(const struct kernels **inner, void **stream)
{
    *inner = &cuda_table_emulated != NULL ? &cuda_table_emulated
                                          : __real_kernels_all()[0];
    *stream = NULL;
    return ERR_OK;
}

static void *allocate(size_t bytes)
{
    return __real_aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static enum err wait_for(void *stream)
{
    (void)stream;
    return ERR_OK;
}

const struct managed_source managed_source = {
    .start = start,
    .allocate = allocate,
    .release = __real_free,
    .wait = wait_for,
    .failed = managed_failed,
};
