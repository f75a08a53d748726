/* The updates: ops by which optimizers change weights element by element. An
 * optimizer is a structure and a row below, of which come its op
 * (kernel_ops.h) and its entry in the table of optimizers
 * (src/parallel/optimizer/optimizer.h), a function in a cpu_*.c and one in a cuda_*.cu.
 *
 * The op of a row changes n elements of p by their gradients g, of `dtype`, and
 * by as many of each moment: m[0], then m[1], NULL where the optimizer has
 * none. p and moments are fp32. Its structure has what it needs of a step,
 * always
 *
 *     lr          of this step
 *     decay       p *= 1 - decay first: (lr / peak lr) * weight_decay
 *     grad_scale  the gradient is g * grad_scale (1 / tokens, clipping)
 *     copy        [n] the new p in bf16, beside p; NULL: none
 *
 * and the members that its row sets. The row is
 *
 *     ROW(OP, name, (moments), (members), uses, (defaults))
 *
 * moments: their names in checkpoints, as PyTorch has them. members: set from
 * `s`, a struct optimizer_step (src/parallel/optimizer/optimizer.h). uses: the
 * settings that it goes by. defaults: of settings that this optimizer has
 * otherwise than AdamW (struct optimizer_ops). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* No optimizer has more moments. */
#define UPDATE_MOMENTS 2

/* How many steps old a moment is in step s, with this one; number 0 of an
 * optimizer without moments is that of its states. */
#define UPDATE_AGE(s, moment) ((double)((s)->count - (s)->began[moment]))

/* DecoupledAdamW (Composer's definition): p *= 1 - decay;
 * m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 * p -= lr / correction1 * m / (sqrt(v) / sqrt(correction2) + eps). */
struct adamw {
    float lr, decay, grad_scale;
    float beta1, beta2, eps;
    float correction1; /* 1 - beta1^t, of the steps t since m was 0 */
    float correction2; /* 1 - beta2^t, since v was */
    void *copy;
};
#define UPDATE_adamw(ROW, OP)                                                  \
    ROW(OP, adamw, ("exp_avg", "exp_avg_sq"),                                  \
        (.beta1 = (float)s->beta1, .beta2 = (float)s->beta2,                   \
         .eps = (float)s->eps,                                                 \
         .correction1 = (float)(1.0 - real_pow(s->beta1, UPDATE_AGE(s, 0))),   \
         .correction2 = (float)(1.0 - real_pow(s->beta2, UPDATE_AGE(s, 1)))),  \
        "beta1 beta2 eps", (0))

/* DecoupledLionW (Chen et al. 2023; Composer's definition): p *= 1 - decay;
 * p -= lr * sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g. */
struct lion {
    float lr, decay, grad_scale;
    float beta1, beta2;
    void *copy;
};
#define UPDATE_lion(ROW, OP)                                                   \
    ROW(OP, lion, ("exp_avg"),                                                 \
        (.beta1 = (float)s->beta1, .beta2 = (float)s->beta2), "beta1 beta2",   \
        (.beta2 = 0.99))

/* DecoupledSGDW (Composer's definition: PyTorch's SGD, with decay that does not
 * pass through the momentum): m = b1 m + fresh g; p *= 1 - decay; p -= lr m, or
 * with Nesterov lr (g + b1 m). */
struct sgd {
    float lr, decay, grad_scale;
    float momentum;
    float fresh; /* 1 - dampening; 1 in the first step and without momentum */
    bool nesterov;
    void *copy;
};
#define UPDATE_sgd(ROW, OP)                                                    \
    ROW(OP, sgd, ("momentum_buffer"),                                          \
        (.momentum = (float)s->beta1,                                          \
         .fresh =                                                              \
             (float)(UPDATE_AGE(s, 0) > 1 && s->beta1 > 0 ? 1.0 - s->dampening \
                                                          : 1.0),              \
         .nesterov = s->nesterov),                                             \
        "beta1 dampening nesterov", (.lr = 0.1))

/* The rows; the first is the optimizer where none is named. */
#define KERNEL_UPDATES(ROW, OP)                                                \
    UPDATE_adamw(ROW, OP) UPDATE_lion(ROW, OP) UPDATE_sgd(ROW, OP)

/* The structure of a row, set from `s`. */
#define UPDATE_STEP(...)                                                       \
    {                                                                          \
        .lr = (float)s->lr, .decay = (float)s->decay,                          \
        .grad_scale = (float)s->grad_scale, __VA_ARGS__                        \
    }
/* A row as an entry of kernel_ops.h. */
#define KERNEL_UPDATE(OP, name, ...)                                           \
    OP(name,                                                                   \
       (enum dtype dtype, int64_t n, const struct name *step, float *p,        \
        const void *g, float *const m[UPDATE_MOMENTS]),                        \
       (dtype, n, step, p, g, m), p, g, m[0], m[1], step->copy)
