/* The chosen algorithms of products as lines of text, and back. Checkpoints
 * keep this text, so a resumed run has the same bits.
 *
 * An algorithm is a structure that only cuBLASLt understands, and only the
 * version that filled it: it is kept as it is, in hexadecimal, behind the key
 * in words, and the first line has the version. All of a text is read before any
 * of it is taken, so a damaged one changes nothing. */
#include "kernels/cuda/libraries/cuda_blas_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

#define WORDS (sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t))
#define DIGITS (WORDS * 16)

static const char *const forms[] = { "NT", "NN", "TN" };
static const char *const types[] = { "f32", "bf16", "e4m3", "e5m2" };

const char *cuda_blas_text_form(int form)
{
    assert(form >= 0 && (size_t)form < sizeof forms / sizeof *forms);
    return forms[form];
}

const char *cuda_blas_text_type(int type)
{
    assert(type >= 0 && (size_t)type < sizeof types / sizeof *types);
    return types[type];
}

static void plan_write(FILE *file, const struct cuda_blas_plan *plan)
{
    const struct cuda_blas_plan_key *k = &plan->key;
    fprintf(file,
            "%s %s %s %s %" PRId64 " %" PRId64 " %" PRId64
            " %d %d %d %d %d %d %d ",
            forms[k->form], types[k->a_type], types[k->b_type],
            types[k->c_type], k->m, k->n, k->k, k->accumulate, k->bias, k->fast,
            k->align_a, k->align_b, k->align_c, k->align_bias);
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

/* The name's number, or `count`. */
static uint8_t number_of(const char *const *names, uint8_t count,
                         const char *name)
{
    uint8_t i = 0;
    while (i < count && strcmp(name, names[i]) != 0)
        i++;
    return i;
}

/* Combinations that ops ask for: a line of any other is of another program, and
 * an algorithm must never meet operands that it was not made for. */
static bool types_fit(const struct cuda_blas_plan_key *k)
{
    if (k->a_type >= CUDA_BLAS_PLAN_E4M3)
        return k->form == GEMM_NT && k->b_type >= CUDA_BLAS_PLAN_E4M3 &&
               k->c_type <= CUDA_BLAS_PLAN_BF16;
    return k->b_type == k->a_type && k->fast == 0 &&
           k->c_type == (k->form == GEMM_TN ? CUDA_BLAS_PLAN_F32 : k->a_type);
}

/* The key's form and types, and its numbers from u: +=, bias, fast,
 * alignments. */
static bool key_read(const char *form, char type[3][5], const unsigned u[7],
                     struct cuda_blas_plan_key *key)
{
    const uint8_t form_count = sizeof forms / sizeof *forms;
    const uint8_t type_count = sizeof types / sizeof *types;
    key->form = number_of(forms, form_count, form);
    key->a_type = number_of(types, type_count, type[0]);
    key->b_type = number_of(types, type_count, type[1]);
    key->c_type = number_of(types, type_count, type[2]);
    if (key->form == form_count || key->a_type == type_count ||
        key->b_type == type_count || key->c_type == type_count)
        return false;
    if (u[0] > 1 || u[1] > 1 || u[2] > 1 || !aligned(u[3]) || !aligned(u[4]) ||
        !aligned(u[5]) || (u[1] == 1 ? !aligned(u[6]) : u[6] != 0))
        return false;
    key->accumulate = (uint8_t)u[0];
    key->bias = (uint8_t)u[1];
    key->fast = (uint16_t)u[2];
    key->align_a = (uint16_t)u[3];
    key->align_b = (uint16_t)u[4];
    key->align_c = (uint16_t)u[5];
    key->align_bias = (uint16_t)u[6];
    return key->m > 0 && key->n > 0 && key->k > 0 && types_fit(key);
}

static bool plan_read(const char *line, struct cuda_blas_plan *plan)
{
    struct cuda_blas_plan_key *k = &plan->key;
    char form[3], type[3][5], digits[DIGITS + 2];
    unsigned u[7];
    int fields, used = 0;
    memset(plan, 0, sizeof *plan);
    _Static_assert(DIGITS + 1 == 129, "the longest field below");
    fields = sscanf(line,
                    "%2s %4s %4s %4s %19" SCNd64 " %19" SCNd64 " %19" SCNd64
                    " %2u %2u %2u %2u %2u %2u %2u %129s%n",
                    form, type[0], type[1], type[2], &k->m, &k->n, &k->k, &u[0],
                    &u[1], &u[2], &u[3], &u[4], &u[5], &u[6], digits, &used);
    if (fields != 15 || line[used] != '\0' || !key_read(form, type, u, k))
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
    char *copy = NULL, *line;
    struct cuda_blas_plan *read = NULL;
    size_t n = 0;
    *plans = NULL;
    *count = 0;
    TRY_OUT(new_text(&copy, text));
    TRY_OUT(new_zeroed(&read, lines_of(text)));
    char *rest = copy;
    line = strsep(&rest, "\n");
    TRY_OUT(version_check(line, version));
    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0')
        if (!plan_read(line, &read[n++]))
            TRY_OUT(err_set(
                ERR_DATA, "algorithms of products: line %zu is damaged: %.60s",
                n + 1, line));
    if (rest != NULL && *rest != '\0')
        TRY_OUT(err_set(ERR_DATA,
                        "algorithms of products: text after the empty line %zu",
                        n + 2));
    *count = n;
out:
    free(copy);
    return new_or_none(rc, read, plans, free);
}
