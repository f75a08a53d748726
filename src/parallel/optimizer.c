/* Makes the table of optimizers of the rows of kernels/kernel_updates.h. Who
 * calls an update, and on which elements, is in replica_state.c. */
#include "src/parallel/optimizer.h"

#include <stddef.h>

#include "src/base/real.h"

/* The op of a row, with what it needs of the step. */
#define UPDATE(OP, name, names, members, ...)                                  \
    static enum err name##_update(                                             \
        const struct optimizer_step *s, const struct kernels *kernels,         \
        const struct kernel_ctx *ctx, const struct optimizer_piece *piece)     \
    {                                                                          \
        const struct name step = UPDATE_STEP(KERNEL_BARE members);             \
        return kernels->name(ctx, DTYPE_F32, piece->elements, &step,           \
                             piece->weights, piece->gradient, piece->moments); \
    }
/* clang-format off */
KERNEL_UPDATES(UPDATE, )

#define IN_BRACES(...) { __VA_ARGS__ }
#define ENTRY(OP, name_, names, members, values)                               \
    { .name = #name_,                                                          \
      .moments = IN_BRACES(KERNEL_BARE names),                                 \
      .defaults = IN_BRACES(KERNEL_BARE values),                               \
      .update = name_##_update },

static const struct optimizer_ops table[] = { KERNEL_UPDATES(ENTRY, ) };

#define NAME(OP, name, ...) #name,
const char *const optimizer_names[] = { KERNEL_UPDATES(NAME, ) NULL };
/* clang-format on */

const struct optimizer_ops *optimizer_at(int index)
{
    const int count = sizeof table / sizeof table[0];
    return index >= 0 && index < count ? &table[index] : NULL;
}

int optimizer_moments(const struct optimizer_ops *optimizer)
{
    int count = 0;
    while (count < UPDATE_MOMENTS && optimizer->moments[count] != NULL)
        count++;
    return count;
}
