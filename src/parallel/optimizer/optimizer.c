/* Makes the table of optimizers: of the rows of kernels/kernel_updates.h, and of
 * those that have files of their own. Who calls an update, and on which
 * elements, is in replica_update.c. */
#include "src/parallel/optimizer/optimizer.h"

#include <assert.h>

#include "src/base/globs.h"
#include "src/base/real.h"

/* The op of a row, with what it needs of the step. */
#define UPDATE(OP, name, names, members, ...)                                  \
    static enum err name##_update(const struct optimizer_step *s,              \
                                  const struct kernels *kernels,               \
                                  const struct kernel_ctx *ctx,                \
                                  const struct optimizer_partition *partition) \
    {                                                                          \
        const struct name step = UPDATE_STEP(KERNEL_BARE members);             \
        return kernels->name(ctx, DTYPE_F32, partition->elements, &step,       \
                             partition->weights, partition->gradient,          \
                             partition->moments);                              \
    }
/* clang-format off */
KERNEL_UPDATES(UPDATE, )

#define IN_BRACES(...) { __VA_ARGS__ }
#define ENTRY(OP, name_, names, members, uses_, values)                        \
    { .name = #name_,                                                          \
      .moments = IN_BRACES(KERNEL_BARE names),                                 \
      .uses = uses_,                                                           \
      .defaults = IN_BRACES(KERNEL_BARE values),                               \
      .update = name_##_update },

static const struct optimizer_ops rows[] = { KERNEL_UPDATES(ENTRY, ) };
#define ROWS (int)(sizeof rows / sizeof rows[0])

/* PyTorch's AdamW, and llm.c's: what decays is lr * weight_decay. */
const struct optimizer_ops optimizer_torch_adamw = {
    .name = "torch_adamw",
    .moments = { "exp_avg", "exp_avg_sq" },
    .uses = "beta1 beta2 eps",
    .decay_by_lr = true,
    .update = adamw_update,
};

static const struct optimizer_ops *const others[] = {
    &optimizer_torch_adamw, &optimizer_adalr_lion, &optimizer_clip_lion,
    &optimizer_adafactor, &optimizer_muon
};

#define NAME(OP, name, ...) #name,
const char *const optimizer_names[] = { KERNEL_UPDATES(NAME, ) "torch_adamw",
                                        "adalr_lion", "clip_lion", "adafactor",
                                        "muon", NULL };
/* clang-format on */

const struct optimizer_ops *optimizer_at(int index)
{
    const int count = sizeof others / sizeof others[0];
    if (index < 0 || index >= ROWS + count)
        return NULL;
    return index < ROWS ? &rows[index] : others[index - ROWS];
}

int optimizer_moments(const struct optimizer_ops *optimizer)
{
    int count = 0;
    while (count < UPDATE_MOMENTS && optimizer->moments[count] != NULL)
        count++;
    return count;
}

int optimizer_states(const struct optimizer_ops *optimizer)
{
    int count = 0;
    while (count < OPTIMIZER_STATES && optimizer->states[count] != NULL)
        count++;
    return count;
}

int64_t optimizer_state_elements(const struct optimizer_ops *optimizer,
                                 const struct params *params,
                                 const struct param *param, int state)
{
    int64_t shape[2] = { 1, 1 };
    assert(state >= 0 && state < optimizer_states(optimizer));
    int dims = optimizer->state_shape(params, param, state, shape);
    return dims == 0 ? 0 : dims == 1 ? shape[0] : shape[0] * shape[1];
}

bool optimizer_uses(const struct optimizer_ops *optimizer, const char *field)
{
    return globs_match(optimizer->uses, field) ||
           (optimizer->other != NULL &&
            optimizer_uses(optimizer->other, field));
}

int optimizer_find(const struct optimizer_ops *rest,
                   const struct optimizer_group *groups, int count,
                   const struct param *param,
                   const struct optimizer_ops **optimizer)
{
    int group = 0;
    assert(count >= 0 && count <= OPTIMIZER_GROUPS);
    while (group < count && !globs_match(groups[group].match, param->name))
        group++;
    *optimizer = group < count ? groups[group].optimizer : rest;
    if ((*optimizer)->takes != NULL && !(*optimizer)->takes(param))
        *optimizer = (*optimizer)->other;
    return group < count ? group + 1 : 0;
}
