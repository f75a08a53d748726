/* A fixture of the model on a device: weights and gradient are tensors of the
 * table's memory, in fp32 or in bf16. */
#pragma once

#include "tests/model_fixture.h"

#define DEVICE_LEAVES 4
#define DEVICE_LOSSES 16 /* room for more */
#define DEVICE_SUMS 2    /* gradients of leaves with even and odd `fixed` */

/* A fixture whose weights and gradient are tensors of the table's device. */
struct device {
    struct model_fixture *f;
    struct kernels kernels; /* the table's, or with something changed */
    struct kernel_memory memory;
    enum dtype dtype;
    void *stream;
    struct arena tensors;
    void *weights;
    float *gradient;        /* [DEVICE_SUMS][elements] */
    struct leaf_loss *loss; /* [DEVICE_LOSSES] */
    int reached;            /* events that the host has waited for */
    bool fixes;             /* leaves may be kept (model_graph.c) */
    int64_t fixed;          /* what the access says then */
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
    *gradient = d->gradient + d->fixed % DEVICE_SUMS * d->f->params->elements +
                d->f->params->blocks[block].offset;
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
    return d->memory.event_wait(event);
}

static inline int64_t device_fixed(void *arg)
{
    return ((struct device *)arg)->fixed;
}

static inline struct param_access device_access(struct device *d)
{
    return (struct param_access){ .arg = d,
                                  .gather = device_gather,
                                  .release = device_release,
                                  .gradient = device_gradient,
                                  .gradient_done = device_done,
                                  .reach = device_reach,
                                  .fixed = d->fixes ? device_fixed : NULL };
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
    int64_t n = f->params->elements;
    size_t bytes = (size_t)n * dtype_bytes(dtype);
    uint16_t *half = malloc((size_t)n * sizeof half[0]);
    *d = (struct device){
        .f = f, .kernels = *kernels, .memory = *kernels->memory, .dtype = dtype
    };
    d->kernels.memory = &d->memory;
    if (half == NULL || d->memory.stream_create(false, &d->stream) != ERR_OK ||
        d->memory.tensors_create(bytes + DEVICE_SUMS * fixture_bytes(f) + 1024,
                                 &d->tensors) != ERR_OK)
        abort();
    d->weights = arena_take(&d->tensors, bytes);
    d->gradient = arena_take(&d->tensors, DEVICE_SUMS * fixture_bytes(f));
    d->loss = arena_take(&d->tensors, DEVICE_LOSSES * sizeof d->loss[0]);
    for (int64_t i = 0; i < n; i++)
        half[i] = to_bf16(f->weights[i]);
    const void *host = dtype == DTYPE_BF16 ? (const void *)half : f->weights;
    if (d->memory.upload(d->stream, bytes, host, d->weights) != ERR_OK)
        abort();
    free(half);
}

static inline void device_close(struct device *d)
{
    d->memory.tensors_destroy(&d->tensors);
    d->memory.stream_destroy(d->stream);
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
    return d->kernels.zero(&ctx, DTYPE_F32,
                           DEVICE_SUMS * d->f->params->elements,
                           d->gradient) == ERR_OK;
}

/* What the device has of them, to the fixture and to loss[DEVICE_LEAVES]. */
static inline bool device_read(struct device *d, struct leaf_loss *loss)
{
    return d->memory.download(d->stream, fixture_bytes(d->f), d->gradient,
                              d->f->gradient) == ERR_OK &&
           d->memory.download(d->stream, DEVICE_LEAVES * sizeof *loss, d->loss,
                              loss) == ERR_OK;
}
