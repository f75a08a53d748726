/* Figures of the residual stream behind a layer. Of a device its elements come
 * to the host piece by piece. Rows are summed alone, then in order, so that the
 * bits do not depend on threads. */
#include "src/model/model_impl.h"

#include <math.h>
#include <string.h>

void model_look(struct model *model, const struct stream_look *look)
{
    model->look = look;
}

static float bf16_value(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* In four lanes, so that the compiler may use registers for them. */
#define LANES 4

static void add_row(const float *x, int64_t n, struct stream_figures *out)
{
    double sum[LANES] = { 0.0 }, squares[LANES] = { 0.0 };
    float largest[LANES] = { 0.0f };
    int64_t zeros[LANES] = { 0 };
    for (int64_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES && i + l < n; l++) {
            float value = x[i + l], size = fabsf(value);
            sum[l] += (double)value;
            squares[l] += (double)value * (double)value;
            zeros[l] += value == 0.0f;
            largest[l] = size > largest[l] ? size : largest[l];
        }
    for (int l = 0; l < LANES; l++) {
        out->sum += sum[l];
        out->squares += squares[l];
        out->zeros += (double)zeros[l];
        out->largest = fmax(out->largest, (double)largest[l]);
    }
    out->elements += (double)n;
}

#define ROW 256 /* elements that are summed alone */

static void add_elements(enum dtype dtype, const void *elements, int64_t n,
                         struct stream_figures *out)
{
    float values[ROW];
    for (int64_t at = 0; at < n; at += ROW) {
        int64_t count = n - at < ROW ? n - at : ROW;
        const float *x = (const float *)elements + at;
        if (dtype != DTYPE_F32) {
            for (int64_t i = 0; i < count; i++)
                values[i] = bf16_value(((const uint16_t *)elements)[at + i]);
            x = values;
        }
        add_row(x, count, out);
    }
}

/* Elements of a device, where the host can read them. */
static enum err fetch(const struct pass *pass, const void *stream, int64_t n)
{
    const struct model *model = pass->model;
    const struct kernel_memory *memory = model->kernels->memory;
    TRY(memory->download(model->ctx.stream,
                         (size_t)n * dtype_bytes(model->options.dtype), stream,
                         model->look->host));
    TRY(memory->event_record(model->look->event, model->ctx.stream));
    return model_reach(model, pass->access, model->look->event);
}

enum err model_look_at(const struct pass *pass, const void *stream)
{
    const struct model *model = pass->model;
    const struct stream_look *look = model->look;
    enum dtype dtype = model->options.dtype;
    int64_t n = pass->n * model->config.d_model;
    struct stream_figures *out =
        &look->figures[pass->place * model->config.n_layers + pass->number];
    /* whole rows, so that the host's share makes no difference */
    int64_t most = (int64_t)(look->host_bytes / dtype_bytes(dtype)) / ROW * ROW;
    *out = (struct stream_figures){ 0 };
    if (!model->kernels->memory->device) {
        add_elements(dtype, stream, n, out);
        return ERR_OK;
    }
    for (int64_t from = 0; from < n; from += most) {
        int64_t count = n - from < most ? n - from : most;
        TRY(fetch(pass, at(model, stream, from), count));
        add_elements(dtype, look->host, count, out);
    }
    return ERR_OK;
}
