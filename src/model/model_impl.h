/* Shared by model.c, model_forward.c and model_backward.c only. */
#ifndef TESSERA_MODEL_MODEL_IMPL_H
#define TESSERA_MODEL_MODEL_IMPL_H

#include "src/base/arena.h"
#include "src/model/model.h"

/* Order of a transformer block's tensors in params->list. */
enum layer_tensor {
    NORM_1_WEIGHT,
    NORM_1_BIAS,
    WQKV_WEIGHT,
    WQKV_BIAS,
    OUT_PROJ_WEIGHT,
    OUT_PROJ_BIAS,
    NORM_2_WEIGHT,
    NORM_2_BIAS,
    UP_PROJ_WEIGHT,
    UP_PROJ_BIAS,
    DOWN_PROJ_WEIGHT,
    DOWN_PROJ_BIAS,
    LAYER_TENSORS
};

/* Saved by forward for backward, per transformer block; n rows of a leaf. */
struct layer_saved {
    float *x;      /* [n, d] the block's input */
    float *mean_1; /* [n] */
    float *rstd_1; /* [n] */
    float *qkv;    /* [n, 3d] */
    float *att;    /* [n, d] */
    float *lse;    /* [samples, heads, seq] */
    float *mid;    /* [n, d] residual stream after attention */
    float *mean_2; /* [n] */
    float *rstd_2; /* [n] */
    float *up;     /* [n, f] before GELU */
};

struct model {
    struct model_config config;
    const struct params *params;
    const struct kernels *kernels;
    struct kernel_ctx ctx;
    struct arena arena;
    int64_t samples; /* limits */
    int64_t seq_len;
    struct layer_saved *layers; /* [n_layers] */
    float *x_last;              /* [n, d] input of the final norm */
    float *mean_f;              /* [n] */
    float *rstd_f;              /* [n] */
    float *norm;                /* [n, d] a norm's output */
    float *branch;              /* [n, d] what is added to the stream */
    float *act;                 /* [n, f] GELU's output */
    float *logits;              /* [MODEL_LOGIT_ROWS, V] */
    float *losses;              /* [n] */
    float *dx;                  /* [n, d] gradient of the stream */
    float *dnorm;               /* [n, d] */
    float *dqkv;                /* [n, 3d] */
    float *dup;                 /* [n, f] */
};

/* Tensor `tensor` (enum layer_tensor) of transformer block `layer` within its block arena. */
static inline int64_t layer_offset(const struct params *params, int layer,
                                   int tensor)
{
    const struct param *param = &params->list[2 + layer * (int)LAYER_TENSORS + tensor];
    return param->offset - params->blocks[layer + 1].offset;
}

/* wpe within the embedding block; wte is at 0. */
static inline int64_t wpe_offset(const struct params *params)
{
    return params->list[1].offset - params->blocks[0].offset;
}

/* The final norm's bias within the last block; its weight is at 0. */
static inline int64_t norm_f_bias_offset(const struct params *params)
{
    return params->list[params->count - 1].offset -
           params->blocks[params->block_count - 1].offset;
}

static inline struct norm model_norm(const struct model *model, int64_t n)
{
    return (struct norm){ .kind = NORM_LAYER,
                          .n = n,
                          .groups = 1,
                          .d = model->config.d_model,
                          .stride = model->config.d_model,
                          .shared = true,
                          .eps = (float)model->config.norm_eps };
}

enum err model_gemm(struct model *model, enum gemm_form form, int64_t m,
                    int64_t n, int64_t k, const float *a, const float *b,
                    float *c, const float *bias);
enum err model_gemm_add(struct model *model, enum gemm_form form, int64_t m,
                        int64_t n, int64_t k, const float *a, const float *b,
                        float *c);

/* Embedding and all blocks; leaves the final norm's input in x_last. */
enum err model_forward(struct model *model, const struct param_access *access,
                       const struct leaf *leaf);
/* The attention op's shape for this leaf. */
struct attention model_attention(const struct model *model,
                                 const struct leaf *leaf);
/* Final norm, logits, loss; with `gradient` also the head's gradients, and
 * model->dx becomes the gradient of x_last. */
enum err model_head(struct model *model, const struct param_access *access,
                    const struct leaf *leaf, bool gradient, double *loss_sum);
/* From model->dx back through all blocks and the embedding. */
enum err model_backward(struct model *model, const struct param_access *access,
                        const struct leaf *leaf);

#endif
