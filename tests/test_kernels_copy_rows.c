/* Rows between strides, on every table: every element to its place, and nothing
 * beside it. */

#include "tests/kernel_check.h"

#define BYTES_MAX 65536
#define POISON 0xa5

static const struct {
    const char *name;
    enum dtype dtype;
    int64_t rows, width, x_stride, y_stride;
    int64_t x_first, y_first; /* elements before the first row */
} cases[] = {
    { "a row", DTYPE_F32, 1, 16, 16, 16, 0, 0 },
    { "no row", DTYPE_F32, 0, 16, 16, 16, 0, 0 },
    { "one element", DTYPE_BF16, 3, 1, 1, 1, 0, 0 },
    { "contiguous", DTYPE_F32, 9, 48, 48, 48, 0, 0 },
    { "out of wider rows", DTYPE_F32, 7, 32, 96, 32, 64, 0 },
    { "into wider rows", DTYPE_BF16, 7, 32, 32, 96, 0, 64 },
    { "odd", DTYPE_BF16, 5, 7, 11, 13, 3, 1 },
    { "odd, fp32", DTYPE_F32, 5, 7, 11, 13, 3, 1 },
    { "wide", DTYPE_BF16, 3, 5000, 6000, 5008, 8, 8 },
    { "64 bits", DTYPE_F64, 4, 6, 8, 10, 2, 0 },
};

static void check(const struct kernels *kernels, size_t number)
{
    unsigned char *x = check_alloc(BYTES_MAX), *y = check_alloc(BYTES_MAX);
    static unsigned char want[BYTES_MAX];
    size_t size = dtype_bytes(cases[number].dtype);
    int64_t width = cases[number].width;
    struct kernel_ctx ctx = { .threads = 2 };
    for (size_t i = 0; i < BYTES_MAX; i++)
        x[i] = (unsigned char)(i * 7 + i / 251);
    memset(y, POISON, BYTES_MAX);
    memset(want, POISON, sizeof want);
    for (int64_t r = 0; r < cases[number].rows; r++) {
        int64_t from = cases[number].x_first + r * cases[number].x_stride;
        int64_t to = cases[number].y_first + r * cases[number].y_stride;
        memcpy(want + (size_t)to * size, x + (size_t)from * size,
               (size_t)width * size);
    }
    enum err rc = kernels->copy_rows(
        &ctx, cases[number].dtype, cases[number].rows, width,
        cases[number].x_stride, x + (size_t)cases[number].x_first * size,
        cases[number].y_stride, y + (size_t)cases[number].y_first * size);
    tap_ok(rc == ERR_OK && memcmp(y, want, BYTES_MAX) == 0, "%s, %s: copy_rows",
           kernels->kernel_set, cases[number].name);
    check_release();
}

int main(void)
{
    const struct kernels *const *tables = kernels_all();
    for (int k = 0; tables[k] != NULL; k++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            check(tables[k], i);
    return tap_done();
}
