/* A library with BLIS's names, for the bench to open: right, but in no hurry,
 * or as BLAS_FAKE in the environment says: "wrong" in one element of each
 * product, "rounded" as if operands were bf16, "dead" at the first product,
 * "silent" for ever. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_TRANS 111

const char *bli_info_get_version_str(void);
const char *bli_arch_string(int id);
int bli_arch_query_id(void);
void bli_thread_set_num_threads(int64_t threads);
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n,
                 int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc);

const char *bli_info_get_version_str(void)
{
    return "0.0-fake";
}

const char *bli_arch_string(int id)
{
    return id == 0 ? "haswell" : "generic";
}

int bli_arch_query_id(void)
{
    const char *forced = getenv("BLIS_ARCH_TYPE");
    return forced != NULL ? atoi(forced) : 1;
}

void bli_thread_set_num_threads(int64_t threads)
{
    (void)threads;
}

static bool says(const char *fault)
{
    const char *text = getenv("BLAS_FAKE");
    return text != NULL && strcmp(text, fault) == 0;
}

/* To 8 bits, as bf16 has, towards zero; a whole number. */
static float rounded(float x)
{
    int whole = (int)x;
    int unit = 1;
    while (abs(whole) / unit >= 256)
        unit *= 2;
    return (float)(whole / unit * unit);
}

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n,
                 int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc)
{
    (void)order;
    (void)alpha;
    (void)beta;
    if (says("dead"))
        raise(SIGKILL);
    while (says("silent"))
        pause();
    bool rounds = says("rounded");
    for (int i = 0; i < m; i++) {
        float *row = c + (int64_t)i * ldc;
        memset(row, 0, (size_t)n * sizeof *row);
        for (int p = 0; p < k; p++) {
            float x = transpose_a == NO_TRANS ? a[(int64_t)i * lda + p]
                                              : a[(int64_t)p * lda + i];
            if (rounds)
                x = rounded(x);
            for (int j = 0; j < n; j++)
                row[j] +=
                    x * (transpose_b == NO_TRANS ? b[(int64_t)p * ldb + j]
                                                 : b[(int64_t)j * ldb + p]);
        }
    }
    if (says("wrong"))
        c[(int64_t)(m / 2) * ldc + n / 3] += 1.0f;
}
