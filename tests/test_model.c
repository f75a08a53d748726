/* The whole model against an fp64 reference: loss, gradients by central
 * differences of the reference's loss, and the same bits for any number of
 * threads. */
#include "src/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/rng.h"
#include "tests/tap.h"

#define SAMPLES 2
#define SEQ 6
#define D 32
#define HEADS 2
#define VOCAB 37
#define N (SAMPLES * SEQ)
#define F (4 * D)

static const struct model_config config = { D, HEADS, 2, VOCAB, SEQ, 4, 1e-5 };
static int32_t tokens[N], labels[N], documents[N];

/* --- the reference ----------------------------------------------------------- */

static const double *tensor(const struct params *params, const double *w,
                            const char *name)
{
    for (int i = 0; i < params->count; i++)
        if (strcmp(params->list[i].name, name) == 0)
            return w + params->list[i].offset;
    abort();
}

static const double *layer_tensor(const struct params *params, const double *w,
                                  int layer, const char *name)
{
    char text[96];
    snprintf(text, sizeof text, "transformer.blocks.%d.%s", layer, name);
    return tensor(params, w, text);
}

static void norm(const double *x, const double *g, const double *b, double *y)
{
    double mean = 0.0, var = 0.0;
    for (int i = 0; i < D; i++)
        mean += x[i] / D;
    for (int i = 0; i < D; i++)
        var += (x[i] - mean) * (x[i] - mean) / D;
    for (int i = 0; i < D; i++)
        y[i] = (x[i] - mean) / sqrt(var + 1e-5) * g[i] + b[i];
}

static void linear(const double *x, const double *w, const double *b, int out,
                   int in, double *y)
{
    for (int o = 0; o < out; o++) {
        y[o] = b[o];
        for (int i = 0; i < in; i++)
            y[o] += w[o * in + i] * x[i];
    }
}

static void attend(double (*qkv)[3 * D], double (*out)[D])
{
    int hd = D / HEADS;
    for (int i = 0; i < N; i++) {
        int row = i / SEQ * SEQ;
        for (int h = 0; h < HEADS; h++) {
            double p[SEQ], total = 0.0;
            for (int j = row; j <= i; j++) {
                double s = 0.0;
                for (int c = 0; c < hd; c++)
                    s += qkv[i][h * hd + c] * qkv[j][D + h * hd + c];
                p[j - row] = documents[i] == documents[j]
                                 ? exp(s / sqrt((double)hd))
                                 : 0.0;
                total += p[j - row];
            }
            for (int c = 0; c < hd; c++) {
                out[i][h * hd + c] = 0.0;
                for (int j = row; j <= i; j++)
                    out[i][h * hd + c] +=
                        p[j - row] / total * qkv[j][2 * D + h * hd + c];
            }
        }
    }
}

static void reference_layer(const struct params *params, const double *w,
                            int layer, double (*x)[D])
{
    double y[D], z[D], up[F], qkv[N][3 * D], att[N][D];
    for (int i = 0; i < N; i++) {
        norm(x[i], layer_tensor(params, w, layer, "norm_1.weight"),
             layer_tensor(params, w, layer, "norm_1.bias"), y);
        linear(y, layer_tensor(params, w, layer, "attn.Wqkv.weight"),
               layer_tensor(params, w, layer, "attn.Wqkv.bias"), 3 * D, D,
               qkv[i]);
    }
    attend(qkv, att);
    for (int i = 0; i < N; i++) {
        linear(att[i], layer_tensor(params, w, layer, "attn.out_proj.weight"),
               layer_tensor(params, w, layer, "attn.out_proj.bias"), D, D, y);
        for (int c = 0; c < D; c++)
            x[i][c] += y[c];
        norm(x[i], layer_tensor(params, w, layer, "norm_2.weight"),
             layer_tensor(params, w, layer, "norm_2.bias"), y);
        linear(y, layer_tensor(params, w, layer, "ffn.up_proj.weight"),
               layer_tensor(params, w, layer, "ffn.up_proj.bias"), F, D, up);
        for (int c = 0; c < F; c++)
            up[c] = up[c] / 2.0 * (1.0 + erf(up[c] / sqrt(2.0)));
        linear(up, layer_tensor(params, w, layer, "ffn.down_proj.weight"),
               layer_tensor(params, w, layer, "ffn.down_proj.bias"), D, F, z);
        for (int c = 0; c < D; c++)
            x[i][c] += z[c];
    }
}

static double reference_loss(const struct params *params, const double *w)
{
    const double *wte = tensor(params, w, "transformer.wte.weight");
    const double *wpe = tensor(params, w, "transformer.wpe.weight");
    double x[N][D], y[D], loss = 0.0;
    for (int i = 0; i < N; i++)
        for (int c = 0; c < D; c++)
            x[i][c] = wte[tokens[i] * D + c] + wpe[i % SEQ * D + c];
    for (int layer = 0; layer < config.n_layers; layer++)
        reference_layer(params, w, layer, x);
    for (int i = 0; i < N; i++) {
        double total = 0.0, label = 0.0;
        if (labels[i] < 0)
            continue;
        norm(x[i], tensor(params, w, "transformer.norm_f.weight"),
             tensor(params, w, "transformer.norm_f.bias"), y);
        for (int v = 0; v < VOCAB; v++) {
            double logit = 0.0;
            for (int c = 0; c < D; c++)
                logit += y[c] * wte[v * D + c];
            total += exp(logit);
            if (v == labels[i])
                label = logit;
        }
        loss += log(total) - label;
    }
    return loss;
}

/* --- the model under test ------------------------------------------------------ */

struct flat {
    const struct params *params;
    float *weights;
    float *gradient;
};

static enum err flat_gather(void *arg, int block, const float **weights)
{
    struct flat *flat = arg;
    *weights = flat->weights + flat->params->blocks[block].offset;
    return ERR_OK;
}

static enum err flat_nothing(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

static enum err flat_gradient(void *arg, int block, float **gradient)
{
    struct flat *flat = arg;
    *gradient = flat->gradient + flat->params->blocks[block].offset;
    return ERR_OK;
}

static double run(const struct params *params, const struct kernels *kernels,
                  int threads, float *weights, float *gradient)
{
    struct flat flat = { params, weights, gradient };
    struct param_access access = { &flat, flat_gather, flat_nothing,
                                   flat_gradient, flat_nothing };
    struct leaf leaf = { SAMPLES, SEQ, tokens, labels, documents };
    struct model *model = NULL;
    double loss = NAN, eval = NAN;
    if (model_create(&config, params, kernels, threads, SAMPLES, SEQ, &model) !=
        ERR_OK)
        return NAN;
    memset(gradient, 0, (size_t)params->elements * sizeof(float));
    if (model_train_leaf(model, &access, &leaf, &loss) != ERR_OK ||
        model_eval_leaf(model, &access, &leaf, &eval) != ERR_OK ||
        loss != eval)
        loss = NAN;
    model_destroy(model);
    return loss;
}

/* Some elements of every tensor. */
static void check_gradient(const struct params *params, double *w,
                           const float *gradient)
{
    const double h = 1e-5;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        double worst = 0.0, largest = 0.0;
        for (int64_t i = 0; i < param->numel; i++)
            largest = fmax(largest, fabs((double)gradient[param->offset + i]));
        for (int k = 0; k < 6; k++) {
            int64_t i = (int64_t)(rng_u64(5, (uint64_t)p, (uint64_t)k) %
                                  (uint64_t)param->numel);
            double *at = &w[param->offset + i];
            double old = *at;
            *at = old + h;
            double up = reference_loss(params, w);
            *at = old - h;
            double down = reference_loss(params, w);
            *at = old;
            double want = (up - down) / (2.0 * h);
            worst = fmax(worst,
                         fabs(want - (double)gradient[param->offset + i]));
        }
        tap_ok(largest > 0.0 && worst <= 2e-5 * fmax(1.0, largest),
               "gradient of %s (worst %.2g of %.2g)", param->name, worst,
               largest);
    }
}

int main(void)
{
    struct params *params = NULL;
    if (params_create(&config, &params) != ERR_OK)
        return 1;
    size_t bytes = (size_t)params->elements * sizeof(float);
    float *weights = malloc(bytes);
    float *gradient = malloc(bytes);
    float *again = malloc(bytes);
    double *w = malloc(2 * bytes);
    params_init(params, 17, 0, params->elements, weights);
    for (int64_t i = 0; i < params->elements; i++) {
        weights[i] += 0.1f * (float)rng_normal(3, 9, (uint64_t)i);
        w[i] = (double)weights[i];
    }
    for (int i = 0; i < N; i++) {
        tokens[i] = (int32_t)(rng_u64(1, 1, (uint64_t)i) % VOCAB);
        labels[i] = i % 5 == 4 ? -100
                               : (int32_t)(rng_u64(1, 2, (uint64_t)i) % VOCAB);
        documents[i] = i >= 3 && i < SEQ;
    }
    double want = reference_loss(params, w);
    const struct kernels *const *tables = kernels_all();
    for (int k = 0; tables[k] != NULL; k++) {
        double loss = run(params, tables[k], 1, weights, gradient);
        tap_is_close(loss, want, 2e-6, "%s/%s: loss", tables[k]->backend,
                     tables[k]->kernel_set);
        double loss_2 = run(params, tables[k], 2, weights, again);
        tap_ok(loss == loss_2 && memcmp(gradient, again, bytes) == 0,
               "%s: the same bits with one and two threads",
               tables[k]->kernel_set);
        check_gradient(params, w, gradient);
    }
    free(weights);
    free(gradient);
    free(again);
    free(w);
    params_destroy(params);
    return tap_done();
}
