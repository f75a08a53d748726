/* A linear layer in 8 bits, on a device whose memory the host cannot touch,
 * against fp64 that rounds its operands the same way. */
#include "src/model/model_impl.h"
#include "tests/kernel_check.h"
#include "tests/model_fp8.h"

/* Relative to the largest element: y and dx are rounded to bf16, dweight is a
 * sum in fp32. */
#define ROUNDED_BF16 (1.0 / 256)
#define SUMMED_F32 4e-6
/* Of the parameters: the first layer, of which there are two. */
#define BLOCK 1

/* Nearest, ties to even; what is too large becomes the largest. */
static double rounded(enum fp8 type, double x)
{
    int mantissa = type == FP8_E4M3 ? 3 : 2;
    int least = type == FP8_E4M3 ? -6 : -14;
    double largest = type == FP8_E4M3 ? 448.0 : 57344.0;
    if (x == 0.0)
        return 0.0;
    int exponent = ilogb(x) < least ? least : ilogb(x);
    double step = ldexp(1.0, exponent - mantissa);
    return fmax(-largest, fmin(largest, rint(x / step) * step));
}

/* A tensor on both sides. */
struct both {
    int64_t count;
    float *host;
    void *device;
};

struct layer_test {
    struct device *device;
    struct model *model;
    struct arena tensors;
    enum linear linear;
    int64_t n, out, in;
    void *weights;   /* the block's, of which this layer's are some */
    float *gradient; /* likewise */
    struct both x, w, bias, dy, y, dx, dweight, dbias;
    float scale[FP8_OPERANDS];
};

/* In bf16, or the gradients of weights in fp32; at `device`, or, if that is
 * NULL, where there is room. */
static struct both take_at(struct layer_test *t, void *device, int64_t count,
                           bool wide, double size)
{
    static uint64_t seed;
    const struct kernel_memory *memory = &t->device->memory;
    size_t bytes = (size_t)count * (wide ? 4 : 2);
    uint16_t *half = check_alloc((size_t)count * sizeof *half);
    struct both b = { .count = count,
                      .host = check_random(count, ++seed, size),
                      .device = device };
    if (device == NULL)
        b.device = arena_take(&t->tensors, bytes);
    for (int64_t i = 0; i < count && !wide; i++) {
        b.host[i] = check_bf16_of(b.host[i]);
        half[i] = to_bf16(b.host[i]);
    }
    const void *from = wide ? (const void *)b.host : half;
    if (memory->upload(t->device->stream, bytes, from, b.device) != ERR_OK)
        abort();
    free(half);
    return b;
}

static struct both take(struct layer_test *t, int64_t count, bool wide,
                        double size)
{
    return take_at(t, NULL, count, wide, size);
}

/* What the device has, into the host's. */
static void fetch(struct layer_test *t, struct both *b, bool wide)
{
    const struct kernel_memory *memory = &t->device->memory;
    size_t bytes = (size_t)b->count * (wide ? 4 : 2);
    uint16_t *half = check_alloc((size_t)b->count * sizeof *half);
    void *to = wide ? (void *)b->host : half;
    if (memory->download(t->device->stream, bytes, b->device, to) != ERR_OK)
        abort();
    for (int64_t i = 0; i < b->count && !wide; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(&b->host[i], &bits, sizeof bits);
    }
    free(half);
}

static void layer_open(struct layer_test *t)
{
    if (t->device->memory.tensors_create((size_t)1 << 20, &t->tensors) !=
        ERR_OK)
        abort();
    const struct block_linear l = block_linear(&t->model->config, t->linear);
    const struct param_block *block = &t->model->params->blocks[BLOCK];
    size_t elements = (size_t)block->elements;
    t->out = l.out;
    t->in = l.in;
    t->weights = arena_take(&t->tensors, elements * 2);
    t->gradient = arena_take(&t->tensors, elements * sizeof(float));
    int64_t weight = block->place[l.weight], bias = block->place[l.bias];
    t->x = take(t, t->n * t->in, false, 1.0);
    t->w =
        take_at(t, (char *)t->weights + 2 * weight, t->out * t->in, false, 0.5);
    t->dy = take(t, t->n * t->out, false, 0.125);
    t->bias = take_at(t, (char *)t->weights + 2 * bias, t->out, false, 1.0);
    t->y = take(t, t->n * t->out, false, NAN);
    t->dx = take(t, t->n * t->in, false, NAN);
    t->dweight = take_at(t, t->gradient + weight, t->out * t->in, true, 1.0);
    t->dbias = take_at(t, t->gradient + bias, t->out, true, 1.0);
}

static void layer_close(struct layer_test *t)
{
    struct both *all[] = { &t->x, &t->w,  &t->bias,    &t->dy,
                           &t->y, &t->dx, &t->dweight, &t->dbias };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]->host);
    t->device->memory.tensors_destroy(&t->tensors);
}

/* In 8 bits, or as it is. */
static double *operand(const struct both *b, enum fp8 type, float scale)
{
    double *x = check_alloc((size_t)b->count * sizeof *x);
    for (int64_t i = 0; i < b->count; i++)
        x[i] = scale == 0.0f
                   ? (double)b->host[i]
                   : rounded(type, (double)b->host[i] * (double)scale) /
                         (double)scale;
    return x;
}

struct wanted {
    double *y, *dx, *dweight;
};

/* Operands are rounded; in 8 bits or as they are. */
static struct wanted want(const struct layer_test *t, bool fp8)
{
    double *x = operand(&t->x, FP8_E4M3, fp8 ? t->scale[0] : 0.0f);
    double *w = operand(&t->w, FP8_E4M3, fp8 ? t->scale[1] : 0.0f);
    double *dy = operand(&t->dy, FP8_E5M2, fp8 ? t->scale[2] : 0.0f);
    int64_t out = t->out, in = t->in;
    struct wanted r = { calloc((size_t)t->y.count, sizeof(double)),
                        calloc((size_t)t->dx.count, sizeof(double)),
                        calloc((size_t)t->dweight.count, sizeof(double)) };
    if (r.y == NULL || r.dx == NULL || r.dweight == NULL)
        abort();
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t j = 0; j < in; j++) {
                r.y[i * out + o] += x[i * in + j] * w[o * in + j];
                r.dx[i * in + j] += dy[i * out + o] * w[o * in + j];
                r.dweight[o * in + j] += dy[i * out + o] * x[i * in + j];
            }
    for (int64_t i = 0; i < t->y.count; i++)
        r.y[i] += (double)t->bias.host[i % out];
    for (int64_t i = 0; i < t->dweight.count; i++)
        r.dweight[i] += (double)t->dweight.host[i];
    free(x);
    free(w);
    free(dy);
    return r;
}

static void wanted_free(struct wanted *w)
{
    free(w->y);
    free(w->dx);
    free(w->dweight);
}

/* Relative to the largest element. */
static double error_of(const struct both *got, const double *wanted)
{
    double worst = 0.0, largest = 0.0;
    for (int64_t i = 0; i < got->count; i++) {
        double off = fabs((double)got->host[i] - wanted[i]);
        worst = isnan(off) ? INFINITY : fmax(worst, off);
        largest = fmax(largest, fabs(wanted[i]));
    }
    return worst / largest;
}

static enum err compute(struct layer_test *t)
{
    enum err rc = ERR_OK;
    struct model *model = t->model;
    struct pass *pass = &model->passes[0];
    int64_t count = model_fp8_count(&model->config);
    float *scales = check_alloc(2 * (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) { /* 1 for others */
        bool own = i / FP8_OPERANDS == LINEARS_FP8 + (int64_t)t->linear;
        scales[i] = own ? t->scale[i % FP8_OPERANDS] : 1.0f;
        scales[count + i] = 1.0f / scales[i];
    }
    pass->number = 1;
    pass->n = t->n;
    pass->block = BLOCK;
    pass->weights = t->weights;
    pass->gradient = t->gradient;
    model->loss_tokens = 1;
    TRY_OUT(model_fp8_clear(model));
    TRY_OUT(model_fp8_upload(model, scales, scales + count));
    struct block b = model_block(pass);
    TRY_OUT(block_apply(&b, t->linear, t->x.device, t->y.device));
    TRY_OUT(model_linear_backward(pass, t->linear, t->dy.device, t->x.device,
                                  t->dx.device));
out:
    free(scales);
    return rc;
}

static float largest_of(const struct both *b)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < b->count; i++)
        largest = fmaxf(largest, fabsf(b->host[i]));
    return largest;
}

/* Of this layer's operands, and nothing of the other layers. */
static bool right_magnitudes(const struct layer_test *t)
{
    int64_t count = model_fp8_count(&t->model->config);
    int64_t first = (LINEARS_FP8 + (int64_t)t->linear) * FP8_OPERANDS;
    float *found = check_alloc((size_t)count * sizeof *found);
    bool right = model_fp8_download(t->model, found) == ERR_OK &&
                 found[first] == largest_of(&t->x) &&
                 found[first + 1] == largest_of(&t->w) &&
                 found[first + 2] == largest_of(&t->dy);
    for (int64_t i = 0; i < count; i++)
        right = right &&
                (i / FP8_OPERANDS == first / FP8_OPERANDS || found[i] == 0);
    free(found);
    return right;
}

static void check_layer(struct layer_test *t, const char *name)
{
    struct wanted in8 = want(t, true), exact = want(t, false);
    enum err rc = compute(t);
    struct both bias = t->dbias;
    double *dbias = check_alloc((size_t)t->out * sizeof *dbias);
    for (int64_t o = 0; o < t->out; o++) {
        dbias[o] = (double)t->dbias.host[o];
        for (int64_t i = 0; i < t->n; i++)
            dbias[o] += (double)t->dy.host[i * t->out + o];
    }
    fetch(t, &t->y, false);
    fetch(t, &t->dx, false);
    fetch(t, &t->dweight, true);
    fetch(t, &bias, true);
    double y = error_of(&t->y, in8.y), dx = error_of(&t->dx, in8.dx);
    double dw = error_of(&t->dweight, in8.dweight);
    tap_ok(rc == ERR_OK && y <= ROUNDED_BF16 && dx <= ROUNDED_BF16,
           "%s: y off by %.2g, dx by %.2g", name, y, dx);
    tap_ok(dw <= SUMMED_F32, "%s: dweight off by %.2g", name, dw);
    tap_ok(error_of(&t->y, exact.y) > 2 * ROUNDED_BF16 &&
               error_of(&t->dx, exact.dx) > 2 * ROUNDED_BF16 &&
               error_of(&t->dweight, exact.dweight) > 1e3 * SUMMED_F32,
           "%s: from rounded operands they are", name);
    tap_ok(error_of(&bias, dbias) <= SUMMED_F32,
           "%s: the bias's gradient is not from 8 bits", name);
    tap_ok(right_magnitudes(t), "%s: magnitudes", name);
    free(dbias);
    wanted_free(&in8);
    wanted_free(&exact);
}

static void test_layers(const struct kernels *kernels)
{
    static const struct {
        const char *name;
        enum linear linear;
        float scale[FP8_OPERANDS]; /* the second ones cut large elements */
    } layers[] = {
        { "qkv", LINEAR_QKV, { 256, 512, 0x1p18f } },
        { "attention's output", LINEAR_OUT, { 1024, 2048, 0x1p20f } },
        { "gate and up", LINEAR_HIDDEN, { 16, 16, 0x1p10f } },
        { "down", LINEAR_DOWN, { 1, 1, 1 } },
    };
    struct model_config llama = { FP8_LLAMA, .bias = true };
    struct device d;
    struct model_fixture *f = fp8_fixture(llama);
    device_open(&d, f, kernels, DTYPE_BF16);
    struct model *model = fp8_model(&d, true, NULL);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        struct layer_test t = {
            .device = &d, .model = model, .linear = layers[i].linear, .n = 48
        };
        memcpy(t.scale, layers[i].scale, sizeof t.scale);
        layer_open(&t);
        check_layer(&t, layers[i].name);
        layer_close(&t);
    }
    model_destroy(model);
    device_close(&d);
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *kernels = NULL;
    if (tap_ok(kernels_find("cuda", "emulated", &kernels) == ERR_OK &&
                   kernels->quantize != NULL,
               "an emulated device with 8-bit floats"))
        test_layers(kernels);
    return tap_done();
}
