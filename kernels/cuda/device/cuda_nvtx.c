/* Spans with a name (steps, blocks, exchanges: src/base/timeline.h) as NVTX ranges, so
 * that a trace by Nsight Systems can be read. Its profiler puts the path of a library
 * into the environment of what it starts; without that nothing is called. The
 * header, which comes with CUDA, opens that library; there is nothing to link. */
#include "kernels/cuda/device/cuda_device.h"

#include <stdlib.h>

#include "src/base/timeline.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

static void nvtx_begin(const char *name)
{
    (void)nvtxRangePushA(name);
}

static void nvtx_end(void)
{
    (void)nvtxRangePop();
}

void cuda_nvtx_start(void)
{
    static const struct timeline_marks marks = { nvtx_begin, nvtx_end };
    if (getenv("NVTX_INJECTION64_PATH") != NULL)
        timeline_marks = &marks;
}
#else
void cuda_nvtx_start(void)
{
}
#endif
