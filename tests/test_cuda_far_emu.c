/* Rows of which some begin more than 2^31 elements after the first: an index of
 * 32 bits would miss them. The memory is reserved, not filled: only the rows'
 * own pages exist. In the emulator, as a GPU would need all of it. */
#include <sys/mman.h>

#include "tests/kernel_check.h"

#define ROWS 3
#define WIDTH 72
#define STRIDE ((int64_t)1100000000)
#define BYTES ((size_t)(ROWS * STRIDE) * sizeof(uint16_t))

static uint16_t *reserve(void)
{
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void release(uint16_t *p)
{
    if (p != NULL)
        munmap(p, BYTES);
}

/* bf16 numbers between 1 and 2. */
static void fill(uint64_t seed, int64_t stride, uint16_t *x)
{
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < WIDTH; i++)
            x[r * stride + i] =
                (uint16_t)(0x3f80 + (int)(64 * (1 + check_uniform(
                                                        seed, r * WIDTH + i))));
}

static bool same(const uint16_t *far, const uint16_t *near)
{
    bool all = true;
    for (int64_t r = 0; r < ROWS; r++)
        all &= memcmp(far + r * STRIDE, near + r * WIDTH,
                      WIDTH * sizeof(*far)) == 0;
    return all;
}

static void check_copy_rows(const struct kernels *table, uint16_t *far)
{
    uint16_t near[ROWS * WIDTH], back[ROWS * WIDTH] = { 0 };
    const struct kernel_ctx ctx = { .threads = 1 };
    fill(1, WIDTH, near);
    enum err rc = table->copy_rows(&ctx, DTYPE_BF16, ROWS, WIDTH, WIDTH, near,
                                   STRIDE, far);
    tap_ok(rc == ERR_OK && same(far, near), "copy_rows to rows far apart");
    rc = table->copy_rows(&ctx, DTYPE_BF16, ROWS, WIDTH, STRIDE, far, WIDTH,
                          back);
    tap_ok(rc == ERR_OK && memcmp(back, near, sizeof(near)) == 0,
           "copy_rows from rows far apart");
}

static void check_norm(const struct kernels *table, uint16_t *x, uint16_t *y)
{
    uint16_t near[ROWS * WIDTH], want[ROWS * WIDTH], gamma[ROWS * WIDTH];
    float rstd[2][ROWS];
    const struct kernel_ctx ctx = { .threads = 1 };
    struct norm norm = { .kind = NORM_RMS,
                         .n = ROWS,
                         .groups = 1,
                         .d = WIDTH,
                         .stride = WIDTH,
                         .shared = true,
                         .eps = 1e-5f };
    fill(2, WIDTH, near);
    fill(2, STRIDE, x);
    fill(3, WIDTH, gamma);
    enum err rc = table->norm_forward(&ctx, DTYPE_BF16, &norm, near, gamma,
                                      NULL, want, NULL, rstd[0]);
    norm.stride = STRIDE;
    if (rc == ERR_OK)
        rc = table->norm_forward(&ctx, DTYPE_BF16, &norm, x, gamma, NULL, y,
                                 NULL, rstd[1]);
    tap_ok(rc == ERR_OK && same(y, want) &&
               memcmp(rstd[0], rstd[1], sizeof(rstd[0])) == 0,
           "norm_forward of rows far apart");
}

static void check_glu(const struct kernels *table, uint16_t *gate, uint16_t *up)
{
    uint16_t near[2][ROWS * WIDTH], dy[ROWS * WIDTH], y[2][ROWS * WIDTH];
    const struct kernel_ctx ctx = { .threads = 1 };
    const int64_t strides[2] = { WIDTH, STRIDE };
    uint16_t *gates[2] = { near[0], gate }, *ups[2] = { near[1], up };
    enum err rc = ERR_OK;
    fill(6, WIDTH, dy);
    for (int i = 0; i < 2 && rc == ERR_OK; i++) {
        fill(4, strides[i], gates[i]);
        fill(5, strides[i], ups[i]);
        rc = table->glu_forward(&ctx, DTYPE_BF16, ACTIVATION_SILU, ROWS, WIDTH,
                                strides[i], gates[i], ups[i], y[i]);
        if (rc == ERR_OK)
            rc = table->glu_backward(&ctx, DTYPE_BF16, ACTIVATION_SILU, ROWS,
                                     WIDTH, strides[i], gates[i], ups[i], dy,
                                     gates[i], ups[i]);
    }
    tap_ok(rc == ERR_OK && memcmp(y[0], y[1], sizeof(y[0])) == 0 &&
               same(gate, near[0]) && same(up, near[1]),
           "glu of rows far apart, and backward");
}

int main(void)
{
    const struct kernels *const *t = kernels_all();
    uint16_t *x = reserve(), *y = reserve();
    while (*t != NULL && strcmp((*t)->backend, "cuda") != 0)
        t++;
    if (x == NULL || y == NULL || *t == NULL) {
        tap_skip("no %s", *t == NULL ? "emulator" : "13 GB of addresses");
    } else {
        check_copy_rows(*t, x);
        check_norm(*t, x, y);
        check_glu(*t, x, y);
    }
    release(y);
    release(x);
    return tap_done();
}
