/* The GPUs of this node for health checks. Training does not use this table:
 * its GPU is chosen in cuda_device.c. */
#include <cuda_runtime_api.h>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/cuda_probe.h"

extern const struct kernels cuda_table;

static enum err gpu_count(int *count)
{
    *count = 0;
    TRY(cuda_device_check());
    return cuda_device_error(cudaGetDeviceCount(count), "counting GPUs");
}

static enum err gpu_peer(int other, bool *direct)
{
    int own = 0, possible = 0;
    *direct = false;
    TRY(cuda_device_error(cudaGetDevice(&own), "asking for the GPU"));
    TRY(cuda_device_error(cudaDeviceCanAccessPeer(&possible, own, other),
                          "asking GPU %d for its peer %d", own, other));
    if (!possible)
        return ERR_OK;
    cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError(); /* no error, so not for the next launch */
        code = cudaSuccess;
    }
    TRY(cuda_device_error(code, "letting GPU %d reach its peer %d", own,
                          other));
    *direct = true;
    return ERR_OK;
}

const struct cuda_probe cuda_probe_table = {
    .kernels = &cuda_table,
    .count = gpu_count,
    .info = cuda_device_info,
    .peer = gpu_peer,
    .fill = cuda_probe_fill,
    .wrong = cuda_probe_wrong,
    .differ = cuda_probe_differ,
    .checksum = cuda_probe_checksum,
    .numbers = cuda_probe_numbers,
    .wrong_sum = cuda_probe_wrong_sum,
};
