/* A fixture of the model on a device: weights and gradient are tensors of the
 * table's memory, in fp32 or in bf16. */
#pragma once

#include "tests/model_fixture.h"

#define DEVICE_LEAVES 4

/* A fixture whose weights and gradient are tensors of the table's device. */
struct device {
    struct model_fixture *f;
    const struct kernels *kernels;
    enum dtype dtype;
    void *stream;
    struct arena tensors;
    void *weights;
    float *gradient;
    struct leaf_loss *loss; /* [DEVICE_LEAVES] */
    int reached;            /* events that the host has waited for */
    bool fixed;             /* leaves may be kept (model_graph.c) */
};

static inline enum err device_gather(void *arg, int block, const void **weights)
{
    struct device *d = arg;
    const void *host;
    enum err rc = fixture_gather(d->f, block, &host);
    *weights = (char *)d->weights + d->f->params->blocks[block].offset *
                                        (int64_t)dtype_bytes(d->dtype);
    return rc;
}

static inline enum err device_release(void *arg, int block)
{
    return fixture_release(((struct device *)arg)->f, block);
}

static inline enum err device_gradient(void *arg, int block, float **gradient)
{
    struct device *d = arg;
    enum err rc = fixture_gradient(d->f, block, gradient);
    *gradient = d->gradient + d->f->params->blocks[block].offset;
    return rc;
}

static inline enum err device_done(void *arg, int block)
{
    return fixture_done(((struct device *)arg)->f, block);
}

static inline enum err device_reach(void *arg, void *event)
{
    struct device *d = arg;
    d->reached++;
    return d->kernels->memory->event_wait(event);
}

static inline int64_t device_fixed(void *arg)
{
    (void)arg;
    return 0;
}

static inline struct param_access device_access(struct device *d)
{
    return (struct param_access){ .arg = d,
                                  .gather = device_gather,
                                  .release = device_release,
                                  .gradient = device_gradient,
                                  .gradient_done = device_done,
                                  .reach = device_reach,
                                  .fixed = d->fixed ? device_fixed : NULL };
}

static inline uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds the fixture's weights to what the device has. */
static inline void round_weights(struct model_fixture *f, enum dtype dtype)
{
    for (int64_t i = 0; dtype == DTYPE_BF16 && i < f->params->elements; i++) {
        uint32_t bits = (uint32_t)to_bf16(f->weights[i]) << 16;
        memcpy(&f->weights[i], &bits, sizeof bits);
    }
}

static inline void device_open(struct device *d, struct model_fixture *f,
                               const struct kernels *kernels, enum dtype dtype)
{
    const struct kernel_memory *memory = kernels->memory;
    int64_t n = f->params->elements;
    size_t bytes = (size_t)n * dtype_bytes(dtype);
    uint16_t *half = malloc((size_t)n * sizeof half[0]);
    *d = (struct device){ .f = f, .kernels = kernels, .dtype = dtype };
    if (half == NULL || memory->stream_create(false, &d->stream) != ERR_OK ||
        memory->tensors_create(bytes + fixture_bytes(f) + 1024, &d->tensors) !=
            ERR_OK)
        abort();
    d->weights = arena_take(&d->tensors, bytes);
    d->gradient = arena_take(&d->tensors, fixture_bytes(f));
    d->loss = arena_take(&d->tensors, DEVICE_LEAVES * sizeof d->loss[0]);
    for (int64_t i = 0; i < n; i++)
        half[i] = to_bf16(f->weights[i]);
    const void *host = dtype == DTYPE_BF16 ? (const void *)half : f->weights;
    if (memory->upload(d->stream, bytes, host, d->weights) != ERR_OK)
        abort();
    free(half);
}

static inline void device_close(struct device *d)
{
    d->kernels->memory->tensors_destroy(&d->tensors);
    d->kernels->memory->stream_destroy(d->stream);
}

static inline struct model_options device_options(const struct device *d,
                                                  const char *memory)
{
    struct model_options options = fixture_options(d->f, 1);
    options.stream = d->stream;
    options.dtype = d->dtype;
    if (memory != NULL && model_memory_parse(memory, d->f->config.n_layers,
                                             &options.memory) != ERR_OK)
        abort();
    return options;
}

static inline bool device_zero(struct device *d)
{
    struct kernel_ctx ctx = { .threads = 1, .stream = d->stream };
    memset(d->f->done, 0, sizeof d->f->done);
    return d->kernels->zero(&ctx, DTYPE_F32, d->f->params->elements,
                            d->gradient) == ERR_OK;
}

/* What the device has of them, to the fixture and to loss[DEVICE_LEAVES]. */
static inline bool device_read(struct device *d, struct leaf_loss *loss)
{
    const struct kernel_memory *memory = d->kernels->memory;
    return memory->download(d->stream, fixture_bytes(d->f), d->gradient,
                            d->f->gradient) == ERR_OK &&
           memory->download(d->stream, DEVICE_LEAVES * sizeof *loss, d->loss,
                            loss) == ERR_OK;
}
