/* A driver of CUDA without a GPU, as libcuda.so.1: with it cuDNN and NVRTC make
 * plans, down to compiled kernels, for a device that is only described to them.
 * Kernels can be loaded; everything else answers as NVIDIA's link stub does. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SUCCESS 0
#define STUB 34
#define VERSION 13000

/* What cuDNN looks for by name. */
#define WORKS(name)                                                            \
    int name(void);                                                            \
    int name(void)                                                             \
    {                                                                          \
        return SUCCESS;                                                        \
    }
#define REFUSES(name)                                                          \
    int name(void);                                                            \
    int name(void)                                                             \
    {                                                                          \
        return STUB;                                                           \
    }

WORKS(cuInit)
WORKS(cuLibraryLoadData)
WORKS(cuLibraryGetKernel)
WORKS(cuLibraryUnload)
WORKS(cuKernelGetFunction)
WORKS(cuKernelGetAttribute)
WORKS(cuKernelSetAttribute)
WORKS(cuFuncSetAttribute)
REFUSES(cuCtxGetCurrent)
REFUSES(cuCtxGetLimit)
REFUSES(cuCtxPopCurrent)
REFUSES(cuCtxPushCurrent)
REFUSES(cuDeviceGet)
REFUSES(cuGetExportTable)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuLaunchKernel)
REFUSES(cuLaunchKernelEx)
REFUSES(cuLibraryLoadFromFile)
REFUSES(cuLinkAddData)
REFUSES(cuLinkComplete)
REFUSES(cuLinkCreate)
REFUSES(cuLinkDestroy)
REFUSES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSES(cuOccupancyMaxPotentialClusterSize)
REFUSES(cuStreamGetCtx)
static int other(void)
{
    return STUB;
}

int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuGetErrorString(int error, const char **text);
int cuGetErrorName(int error, const char **text);
int cuGetProcAddress(const char *name, void **function, int version,
                     uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **function, int version,
                        uint64_t flags, int *status);

int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "there is no driver";
    return SUCCESS;
}

int cuGetErrorName(int error, const char **text)
{
    return cuGetErrorString(error, text);
}

typedef void (*entry)(void);

static const struct {
    const char *name;
    entry function;
} entries[] = {
    { "cuInit", (entry)cuInit },
    { "cuDriverGetVersion", (entry)cuDriverGetVersion },
    { "cuDeviceGetCount", (entry)cuDeviceGetCount },
    { "cuGetErrorString", (entry)cuGetErrorString },
    { "cuGetErrorName", (entry)cuGetErrorName },
    { "cuLibraryLoadData", (entry)cuLibraryLoadData },
    { "cuLibraryGetKernel", (entry)cuLibraryGetKernel },
    { "cuLibraryUnload", (entry)cuLibraryUnload },
    { "cuKernelGetFunction", (entry)cuKernelGetFunction },
    { "cuKernelGetAttribute", (entry)cuKernelGetAttribute },
    { "cuKernelSetAttribute", (entry)cuKernelSetAttribute },
    { "cuFuncSetAttribute", (entry)cuFuncSetAttribute },
};

/* What CUDA's runtime looks for. */
int cuGetProcAddress_v2(const char *name, void **function, int version,
                        uint64_t flags, int *status)
{
    if (status != NULL)
        *status = 0;
    return cuGetProcAddress(name, function, version, flags);
}

int cuGetProcAddress(const char *name, void **function, int version,
                     uint64_t flags)
{
    entry found = (entry)other;
    (void)flags;
    if (strcmp(name, "cuGetProcAddress") == 0)
        found = version >= 12000 ? (entry)cuGetProcAddress_v2
                                 : (entry)cuGetProcAddress;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(name, entries[i].name) == 0)
            found = entries[i].function;
    memcpy(function, &found, sizeof found);
    return SUCCESS;
}
