/* Three GPUs for tests of probes: the emulated kernels on memory of the
 * processor, of which the second may be ill, and an NCCL between them. */
#pragma once

#include <signal.h>
#include <unistd.h>

#include "healthcheck/health_probe.h"
#include "kernels/cuda/device/cuda_device.h"

#define GPUS 3
#define LONG_S 60.0

extern const struct kernels cuda_table_emulated;

/* --- three GPUs, of which the second may be ill --- */

enum ill {
    SOUND,
    PRODUCT_ONCE,   /* a bit flips in one of the later products */
    PRODUCT_ALWAYS, /* in an element far from the rows that are looked at */
    PRODUCT_ROW,    /* in one that is looked at */
    COPY,           /* copies of memory lose a bit */
    UPLOAD,         /* and those from the host */
    SLEEPS,
    SPINS,
    DIES,
    BREAKS,    /* the driver reports a fault of the GPU */
    NO_MEMORY, /* it is taken by others */
};

static enum ill ill;
static int current;
static int products;
static struct kernels table;
static struct kernel_memory memory;

static enum err gpu_use(int gpu)
{
    current = gpu;
    if (gpu != 1)
        return ERR_OK;
    while (ill == SLEEPS)
        pause();
    for (volatile int i = 0; ill == SPINS; i = (i + 1) % 1000)
        ;
    if (ill == DIES)
        raise(SIGKILL);
    if (ill == BREAKS)
        return err_set(ERR_IO, "using GPU 1: uncorrectable ECC error");
    return ERR_OK;
}

static enum err gpu_tensors(size_t bytes, struct arena *out)
{
    if (current == 1 && ill == NO_MEMORY)
        return err_set(ERR_MEMORY, "asking for %zu bytes", bytes);
    return kernel_memory_cpu.tensors_create(bytes, out);
}

static enum err gpu_copy(void *stream, size_t bytes, const void *from, void *to)
{
    enum err rc = kernel_memory_cpu.copy(stream, bytes, from, to);
    if (current == 1 && ill == COPY)
        ((char *)to)[bytes - 5] ^= 16;
    return rc;
}

static enum err gpu_upload(void *stream, size_t bytes, const void *host,
                           void *tensor)
{
    enum err rc = kernel_memory_cpu.upload(stream, bytes, host, tensor);
    /* not the counts */
    if (current == 1 && ill == UPLOAD && bytes > 8192)
        ((char *)tensor)[bytes / 2] ^= 1;
    return rc;
}

static enum err gpu_gemm KERNEL_LIKE(gemm)
{
    enum err rc = cuda_table_emulated.gemm(ctx, dtype, gemm);
    uint16_t *c = gemm->c;
    products++;
    if (current == 1 &&
        ((ill == PRODUCT_ONCE && products == 6) || ill == PRODUCT_ALWAYS))
        c[gemm->n + 3] ^= 1;
    if (current == 1 && ill == PRODUCT_ROW)
        c[gemm->n * (gemm->m - 1) + 9] ^= 0x100;
    return rc;
}

static enum err gpu_count(int *count)
{
    *count = GPUS;
    return ERR_OK;
}

static enum err gpu_none(int *count)
{
    *count = 0;
    return err_set(ERR_UNSUPPORTED, "no GPU here");
}

static enum err gpu_info(struct cuda_device_info *info)
{
    *info = (struct cuda_device_info){ .bytes_free = (size_t)3 << 20 };
    snprintf(info->bus, sizeof info->bus, "0000:%02x:00.0", 15 + current);
    return ERR_OK;
}

static enum err gpu_peer(int other, bool *direct)
{
    *direct = other != current;
    return ERR_OK;
}

static const struct cuda_probe gpus = {
    .kernels = &table,
    .count = gpu_count,
    .info = gpu_info,
    .peer = gpu_peer,
    .fill = cuda_probe_fill_emulated,
    .wrong = cuda_probe_wrong_emulated,
    .differ = cuda_probe_differ_emulated,
    .checksum = cuda_probe_checksum_emulated,
    .numbers = cuda_probe_numbers_emulated,
    .wrong_sum = cuda_probe_wrong_sum_emulated,
};

/* --- NCCL: calls wait until their group ends --- */

static struct {
    const float *from[GPUS];
    float *to[GPUS];
    size_t count;
    int queued, code, alive;
    bool wrong;
} nccl;

static int nccl_create(void **comms, int count, const int *devices)
{
    for (int i = 0; i < count; i++)
        comms[i] = devices[i] == i ? &nccl.from[i] : NULL;
    nccl.alive += count;
    return nccl.code;
}

static int nccl_destroy(void *comm)
{
    nccl.alive -= comm != NULL;
    return 0;
}

static int nccl_reduce(const void *from, void *to, size_t count, int type,
                       int op, void *comm, void *stream)
{
    (void)stream;
    if (type != COMM_NCCL_FLOAT || op != COMM_NCCL_SUM ||
        comm != &nccl.from[current])
        return 4;
    nccl.from[nccl.queued] = from;
    nccl.to[nccl.queued++] = to;
    nccl.count = count;
    return 0;
}

static int nccl_begin(void)
{
    nccl.queued = 0;
    return 0;
}

static int nccl_end(void)
{
    for (size_t i = 0; i < nccl.count; i++) {
        float sum = 0;
        for (int gpu = 0; gpu < nccl.queued; gpu++)
            sum += nccl.from[gpu][i];
        for (int gpu = 0; gpu < nccl.queued; gpu++)
            nccl.to[gpu][i] =
                nccl.wrong && gpu == 1 && i == nccl.count - 1 ? sum + 1 : sum;
    }
    return nccl.queued == GPUS ? 0 : 5;
}

static const char *nccl_error(int code)
{
    return code == 5 ? "invalid usage" : "unhandled cuda error";
}

static const char *nccl_last(void *comm)
{
    return comm;
}

static const struct comm_nccl_library nccl_fake = {
    .init_all = nccl_create,
    .destroy = nccl_destroy,
    .all_reduce = nccl_reduce,
    .group_start = nccl_begin,
    .group_end = nccl_end,
    .error_text = nccl_error,
    .last_error = nccl_last,
};

static struct health_env env = { .root = "",
                                 .host = "n7",
                                 .phase = HEALTH_JOB };
static const struct health_probe small = { .env = &env,
                                           .gpus = &gpus,
                                           .nccl = &nccl_fake,
                                           .side = 64,
                                           .seconds = 0.01,
                                           .batch = 8,
                                           .memory_part = 0.8,
                                           .copy_bytes = 65536,
                                           .reduce_bytes_min = 512,
                                           .reduce_bytes_max = 32768,
                                           .repeats = 3,
                                           .timeout_s = LONG_S };

/* Before all others. */
static void fixture_begin(void)
{
    memory = kernel_memory_cpu;
    memory.use = gpu_use;
    memory.tensors_create = gpu_tensors;
    memory.copy = gpu_copy;
    memory.upload = gpu_upload;
    table = cuda_table_emulated;
    table.memory = &memory;
    table.gemm = gpu_gemm;
}
