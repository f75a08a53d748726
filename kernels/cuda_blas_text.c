#include "kernels/cuda_blas_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t))
#define DIGITS (WORDS * 16)

static const char *const forms[] = { "NT", "NN", "TN" };

static void plan_write(FILE *file, const struct cuda_blas_plan *plan)
{
    const struct cuda_blas_plan_key *k = &plan->key;
    fprintf(file,
            "%s %s %" PRId64 " %" PRId64 " %" PRId64 " %d %d %d %d %d %d ",
            forms[k->form], dtype_name((enum dtype)k->dtype), k->m, k->n, k->k,
            k->accumulate, k->bias, k->align_a, k->align_b, k->align_c,
            k->align_bias);
    if (!plan->found)
        fputc('-', file);
    for (size_t i = 0; plan->found && i < WORDS; i++)
        fprintf(file, "%016" PRIx64, plan->algo.data[i]);
    fputc('\n', file);
}

enum err cuda_blas_text_write(size_t version,
                              const struct cuda_blas_plan *plans, size_t count,
                              char **text)
{
    size_t bytes = 0;
    *text = NULL;
    FILE *file = open_memstream(text, &bytes);
    if (file == NULL)
        return err_set(ERR_MEMORY, "no memory for the algorithms of products");
    fprintf(file, "cublasLt %zu\n", version);
    for (size_t i = 0; i < count; i++)
        if (plans[i].made || plans[i].chosen)
            plan_write(file, &plans[i]);
    if (fclose(file) == 0)
        return ERR_OK;
    free(*text);
    *text = NULL;
    return err_set(ERR_MEMORY, "no memory for the algorithms of products");
}

static bool algo_read(const char *digits, cublasLtMatmulAlgo_t *algo)
{
    if (strlen(digits) != DIGITS ||
        strspn(digits, "0123456789abcdef") != DIGITS)
        return false;
    for (size_t i = 0; i < WORDS; i++) {
        char word[17] = { 0 };
        memcpy(word, digits + 16 * i, 16);
        algo->data[i] = strtoull(word, NULL, 16);
    }
    return true;
}

static bool aligned(unsigned bytes)
{
    return bytes > 0 && bytes <= CUDA_BLAS_PLAN_ALIGNMENT &&
           (bytes & (bytes - 1)) == 0;
}

/* The key's numbers from u: +=, bias, alignments. */
static bool key_read(const char *form, const char *dtype, const unsigned u[6],
                     struct cuda_blas_plan_key *key)
{
    bool f32 = strcmp(dtype, dtype_name(DTYPE_F32)) == 0;
    int f = GEMM_NT;
    while (f <= GEMM_TN && strcmp(form, forms[f]) != 0)
        f++;
    if (f > GEMM_TN || (!f32 && strcmp(dtype, dtype_name(DTYPE_BF16)) != 0))
        return false;
    if (u[0] > 1 || u[1] > 1 || !aligned(u[2]) || !aligned(u[3]) ||
        !aligned(u[4]) || (u[1] == 1 ? !aligned(u[5]) : u[5] != 0))
        return false;
    key->form = (uint8_t)f;
    key->dtype = f32 ? DTYPE_F32 : DTYPE_BF16;
    key->accumulate = (uint8_t)u[0];
    key->bias = (uint8_t)u[1];
    key->align_a = (uint8_t)u[2];
    key->align_b = (uint8_t)u[3];
    key->align_c = (uint8_t)u[4];
    key->align_bias = (uint8_t)u[5];
    return key->m > 0 && key->n > 0 && key->k > 0;
}

static bool plan_read(const char *line, struct cuda_blas_plan *plan)
{
    struct cuda_blas_plan_key *k = &plan->key;
    char form[3], dtype[8], digits[DIGITS + 2];
    unsigned u[6];
    int fields, used = 0;
    memset(plan, 0, sizeof *plan);
    _Static_assert(DIGITS + 1 == 129, "the longest field below");
    fields = sscanf(line,
                    "%2s %7s %19" SCNd64 " %19" SCNd64 " %19" SCNd64
                    " %2u %2u %2u %2u %2u %2u %129s%n",
                    form, dtype, &k->m, &k->n, &k->k, &u[0], &u[1], &u[2],
                    &u[3], &u[4], &u[5], digits, &used);
    if (fields != 12 || line[used] != '\0' || !key_read(form, dtype, u, k))
        return false;
    plan->chosen = true;
    plan->found = strcmp(digits, "-") != 0;
    return !plan->found || algo_read(digits, &plan->algo);
}

static enum err version_check(const char *line, size_t version)
{
    size_t theirs = 0;
    int used = 0;
    if (sscanf(line, "cublasLt %19zu%n", &theirs, &used) != 1 ||
        line[used] != '\0')
        return err_set(ERR_DATA,
                       "algorithms of products: the first line is "
                       "'%.40s', not cuBLASLt's version",
                       line);
    if (theirs != version)
        return err_set(ERR_UNSUPPORTED,
                       "algorithms of products: they are of cuBLASLt %zu, here "
                       "is %zu; load that version, or drop them and accept "
                       "other bits",
                       theirs, version);
    return ERR_OK;
}

static size_t lines_of(const char *text)
{
    size_t lines = 1;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

enum err cuda_blas_text_read(size_t version, const char *text,
                             struct cuda_blas_plan **plans, size_t *count)
{
    enum err rc = ERR_OK;
    char *copy = strdup(text), *rest = copy, *line;
    struct cuda_blas_plan *read = calloc(lines_of(text), sizeof *read);
    size_t n = 0;
    *plans = NULL;
    *count = 0;
    if (copy == NULL || read == NULL)
        TRY(err_set(ERR_MEMORY, "no memory for the algorithms of products"));
    line = strsep(&rest, "\n");
    TRY(version_check(line, version));
    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0')
        if (!plan_read(line, &read[n++]))
            TRY(err_set(ERR_DATA,
                        "algorithms of products: line %zu is damaged: %.60s",
                        n + 1, line));
    if (rest != NULL && *rest != '\0')
        TRY(err_set(ERR_DATA,
                    "algorithms of products: text after the empty line %zu",
                    n + 2));
    *plans = read;
    *count = n;
    read = NULL;
out:
    free(read);
    free(copy);
    return rc;
}
