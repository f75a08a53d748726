/* grouped_gemm in bf16 on every table that has it, against fp64 on the same
 * bf16 numbers and against each group alone. */
#include "tests/grouped_gemm_check.h"

/* Tiles are 128 x 128 and k is taken in steps of 32. */
static const struct group_case cases[GROUP_CASES] = {
    { "1 row in all", 2, { 0, 1 }, 5, 7, 3 },
    { "no rows", 3, { 0, 0, 0 }, 5, 7, 3 },
    { "1 element each", 4, { 1, 1, 1, 1 }, 1, 1, 1 },
    { "empty ones between", 6, { 0, 5, 0, 64, 1, 0 }, 30, 100, 67 },
    { "whole tiles", 3, { 128, 0, 256 }, 128, 256, 96 },
    { "vectors, ragged", 4, { 31, 1, 0, 161 }, 136, 264, 40 },
    { "odd", 4, { 13, 130, 3, 33 }, 129, 131, 257 },
    { "odd k, whole n", 3, { 129, 7, 64 }, 128, 128, 33 },
    { "whole k, odd n", 3, { 40, 128, 72 }, 127, 135, 64 },
};

int main(void)
{
    const struct kernels *table = bf16_table();
    if (table != NULL)
        check_groups(table, DTYPE_BF16, cases);
    return tap_done();
}
