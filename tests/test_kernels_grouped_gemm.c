/* grouped_gemm in fp32 on every table against fp64, and against each group
 * alone. */
#include "tests/grouped_gemm_check.h"

static const struct group_case cases[GROUP_CASES] = {
    { "1 row in all", 2, { 0, 1 }, 5, 7, 3 },
    { "no rows", 3, { 0, 0, 0 }, 5, 7, 3 },
    { "1 group", 1, { 33 }, 17, 129, 40 },
    { "1 element each", 4, { 1, 1, 1, 1 }, 1, 1, 1 },
    { "empty ones between", 6, { 0, 5, 0, 64, 1, 0 }, 30, 100, 67 },
    { "all in one", 5, { 0, 0, 201, 0, 0 }, 65, 96, 300 },
    { "odd tails", 4, { 13, 27, 3, 12 }, 47, 61, 515 },
    { "many tiles", 3, { 64, 9, 300 }, 200, 515, 140 },
    { "large", 3, { 40, 520, 72 }, 150, 530, 133 },
};

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        check_groups(*t, DTYPE_F32, cases);
    return tap_done();
}
