/* Translates CUDA's errors, chooses a device and says what it is. Its memory
 * and streams are in cuda_memory.c.
 *
 * Errors of CUDA are of two kinds. Some are a call's own; others are left by a
 * kernel that failed long before, and the next call that looks tells of them:
 * so a message names what was tried, and what stands in the code may have
 * happened earlier. Most of the latter kind spoil the context, after which only
 * another process helps: who gets ERR_IO ends the attempt, and the next one may
 * be on other nodes. The table says for each code that is known whether it is
 * the user's, the node's or ours, and what to do. */
#include "kernels/cuda/device/cuda_device.h"

#include <assert.h>
#include <ctype.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct advice {
    cudaError_t code;
    enum err rc;
    const char *todo;
};

#define NO_DRIVER                                                              \
    "install NVIDIA's driver 580 or newer (nvidia-smi shows it) or use cpu"
#define ILL "see nvidia-smi -q and dmesg for Xid, drain the node"

#define UNKEPT "use hardware.graphs = off, where ops are enqueued one by one"

static const struct advice advices[] = {
    { cudaErrorInsufficientDriver, ERR_UNSUPPORTED, NO_DRIVER },
    { cudaErrorStubLibrary, ERR_UNSUPPORTED, NO_DRIVER },
    { cudaErrorSystemDriverMismatch, ERR_UNSUPPORTED,
      "load the kernel module of the installed driver, or reboot" },
    { cudaErrorNoDevice, ERR_UNSUPPORTED,
      "ask Slurm for GPUs (--gpus-per-node), see CUDA_VISIBLE_DEVICES, or use "
      "cpu" },
    { cudaErrorNoKernelImageForDevice, ERR_UNSUPPORTED,
      "this build has no machine code and no PTX for it; use cpu" },
    { cudaErrorMemoryAllocation, ERR_MEMORY,
      "shorten the micro-batch, use more ranks, or see who else is on the GPU "
      "(nvidia-smi)" },
    { cudaErrorDevicesUnavailable, ERR_IO,
      "another process has the GPU to itself (nvidia-smi)" },
    { cudaErrorSystemNotReady, ERR_IO,
      "start nvidia-fabricmanager on the node" },
    { cudaErrorECCUncorrectable, ERR_IO, ILL },
    { cudaErrorNvlinkUncorrectable, ERR_IO, ILL },
    { cudaErrorHardwareStackError, ERR_IO, ILL },
    { cudaErrorStreamCaptureUnsupported, ERR_UNSUPPORTED, UNKEPT },
    { cudaErrorStreamCaptureInvalidated, ERR_UNSUPPORTED, UNKEPT },
    { cudaErrorStreamCaptureMerge, ERR_UNSUPPORTED, UNKEPT },
    { cudaErrorStreamCaptureUnjoined, ERR_UNSUPPORTED, UNKEPT },
    { cudaErrorStreamCaptureIsolation, ERR_UNSUPPORTED, UNKEPT },
    { cudaErrorStreamCaptureImplicit, ERR_UNSUPPORTED, UNKEPT },
    { cudaErrorCapturedEvent, ERR_UNSUPPORTED, UNKEPT },
};

enum err cuda_device_error(int code, const char *format, ...)
{
    char what[256];
    va_list arguments;
    if (code == cudaSuccess)
        return ERR_OK;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    (void)cudaGetLastError(); /* told here, so not by the next launch */
    enum err rc = ERR_INTERNAL;
    /* what is not in the table is taken for a mistake of ours */
    const char *todo = "run under compute-sanitizer and report it";
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if ((int)advices[i].code == code) {
            rc = advices[i].rc;
            todo = advices[i].todo;
        }
    return err_set(rc, "%s: CUDA error %d, %s (%s); %s", what, code,
                   cudaGetErrorName((cudaError_t)code),
                   cudaGetErrorString((cudaError_t)code), todo);
}

enum err cuda_device_count(int *count)
{
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaSuccess && *count == 0)
        code = cudaErrorNoDevice;
    if (code != cudaSuccess)
        *count = 0;
    return cuda_device_error(code, "looking for GPUs");
}

/* The first device counts: the GPUs of a node are of one kind. Machine code for
 * 8.0 runs on all of 8.x; that for 9.0a, which has instructions of Hopper's
 * alone, runs on 9.0 and nowhere else. On later ones, of which a build may have
 * the code (CUDA_ARCHS), the driver compiles the PTX of 8.0. */
enum err cuda_device_check(void)
{
    enum err rc = ERR_OK;
    int count, major = 0, minor = 0;
    TRY_OUT(cuda_device_count(&count));
    TRY_OUT(cuda_device_error(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
        "asking GPU 0 for its capability"));
    TRY_OUT(cuda_device_error(
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0),
        "asking GPU 0 for its capability"));
    if (major < 8)
        rc = err_set(ERR_UNSUPPORTED,
                     "the GPU has compute capability %d.%d, the kernels are "
                     "for 8.0 and later; use cpu",
                     major, minor);
out:
    return rc == ERR_OK ? rc : err_prefix(rc, "backend 'cuda': no GPU here");
}

enum err cuda_device_choose(int local_rank, int count, int *device)
{
    assert(local_rank >= 0 && count >= 1);
    *device = 0;
    if (count > 1 && local_rank >= count)
        return err_set(ERR_USAGE,
                       "rank %d of this node has no GPU, %d are visible; start "
                       "one rank per GPU (--ntasks-per-node=%d)",
                       local_rank, count, count);
    *device = count == 1 ? 0 : local_rank;
    return ERR_OK;
}

enum err cuda_device_use(int local_rank, int *device)
{
    int count, chosen;
    assert(local_rank >= 0);
    *device = 0;
    TRY(cuda_device_count(&count));
    TRY(cuda_device_choose(local_rank, count, &chosen));
    TRY(cuda_device_error(cudaSetDevice(chosen), "using GPU %d", chosen));
    *device = chosen;
    cuda_nvtx_start();
    return ERR_OK;
}

enum err cuda_device_info(struct cuda_device_info *info)
{
    struct cudaDeviceProp properties;
    struct cuda_device_info i = { .driver = 0 };
    int device = 0, clock_khz = 0;
    memset(info, 0, sizeof *info);
    TRY(cuda_device_error(cudaGetDevice(&device), "asking for the GPU"));
    TRY(cuda_device_error(cudaGetDeviceProperties(&properties, device),
                          "asking GPU %d what it is", device));
    TRY(cuda_device_error(
        cudaDeviceGetPCIBusId(i.bus, (int)sizeof i.bus, device),
        "asking GPU %d for its address", device));
    TRY(cuda_device_error(
        cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device),
        "asking GPU %d for its clock", device));
    TRY(cuda_device_error(cudaDriverGetVersion(&i.driver),
                          "asking for the driver's version"));
    TRY(cuda_device_error(cudaRuntimeGetVersion(&i.runtime),
                          "asking for the runtime's version"));
    TRY(cuda_device_error(cudaMemGetInfo(&i.bytes_free, &i.bytes_total),
                          "asking GPU %d for its memory", device));
    snprintf(i.name, sizeof i.name, "%.63s", properties.name);
    i.major = properties.major;
    i.minor = properties.minor;
    i.multiprocessors = properties.multiProcessorCount;
    i.clock_hz = 1e3 * clock_khz;
    *info = i;
    return ERR_OK;
}

void cuda_device_describe(const struct cuda_device_info *info, char *text,
                          size_t bytes)
{
    assert(bytes > 0 && info->multiprocessors > 0);
    snprintf(text, bytes, "%s, %d.%d, %d SMs, driver %d.%d, runtime %d.%d",
             info->name, info->major, info->minor, info->multiprocessors,
             info->driver / 1000, info->driver % 1000 / 10,
             info->runtime / 1000, info->runtime % 1000 / 10);
}

/* NVIDIA's data sheets: dense, without sparsity; 8 bits: 0 where there are
 * none. A longer name comes before its beginning. */
static const struct {
    const char *name;
    int multiprocessors;
    double fp32, bf16, fp8;
} sheets[] = {
    { "H100 PCIe", 114, 51.2e12, 756e12, 1513e12 },
    { "H100 NVL", 132, 60e12, 835e12, 1671e12 },
    { "H100", 132, 66.9e12, 989.4e12, 1978.9e12 },
    { "H200 NVL", 132, 60e12, 835.5e12, 1670.5e12 },
    { "H200", 132, 66.9e12, 989.4e12, 1978.9e12 },
    { "H20", 78, 44e12, 148e12, 296e12 },
    { "A100", 108, 19.5e12, 312e12, 0 },
    { "GB200", 152, 80e12, 2500e12, 5000e12 },
    { "GB300", 152, 80e12, 2500e12, 5000e12 },
    { "B200", 148, 75e12, 2250e12, 4500e12 },
    { "B300", 148, 75e12, 2250e12, 4500e12 },
    { "RTX PRO 6000 Blackwell Max-Q", 188, 110e12, 440e12, 880e12 },
    { "RTX PRO 6000", 188, 125e12, 504e12, 1008e12 },
};

/* What a multiprocessor does in a cycle, a fused multiply-add counted as two
 * operations, for GPUs that no sheet above names. */
static const struct {
    int major, minor;
    double fp32, bf16, fp8;
} kinds[] = {
    { 8, 0, 128, 2048, 0 },      { 8, 6, 256, 1024, 0 },
    { 8, 9, 256, 1024, 2048 },   { 9, 0, 256, 4096, 8192 },
    { 10, 0, 256, 8192, 16384 }, { 10, 3, 256, 8192, 16384 },
    { 12, 0, 256, 1024, 2048 },
};

/* As a word's end: "A100" is no part of "RTX A1000", "H20" none of "H200". */
static bool is_named(const char *name, const char *sheet)
{
    const char *at = strstr(name, sheet);
    return at != NULL && !isalnum((unsigned char)at[strlen(sheet)]);
}

double cuda_device_peak_flops(const struct cuda_device_info *info, bool fp32,
                              bool fp8, const char **source)
{
    double count = info->multiprocessors;
    *source = "table";
    for (size_t i = 0; i < sizeof sheets / sizeof sheets[0]; i++)
        if (is_named(info->name, sheets[i].name))
            return fmin(1.0, count / sheets[i].multiprocessors) *
                   (fp8    ? sheets[i].fp8
                    : fp32 ? sheets[i].fp32
                           : sheets[i].bf16);
    *source = "clock";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (info->major == kinds[i].major && info->minor == kinds[i].minor)
            return count * info->clock_hz *
                   (fp8    ? kinds[i].fp8
                    : fp32 ? kinds[i].fp32
                           : kinds[i].bf16);
    return 0.0;
}
