/* Scales of 8-bit operands from the largest magnitudes of the last steps. The
 * products that use them are in src/model/model_fp8.c.
 *
 * A row of the history is a step's magnitudes, the newest in front, and a scale
 * is made of the largest of a column. In a checkpoint the history is text, each
 * number's 32 bits in hexadecimal: decimal digits would have to be right in
 * reader and writer for a resumed run to have the same scales. */
#include "src/train/run/trainer_fp8.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

/* Bounds the exponents of scales: the product of two inverse ones stays
 * finite. */
#define EXPONENT_MAX 60
#define KEY "fp8" /* of the history in a state, as text */
#define DIGITS 8  /* of a number in the text: its bits in hexadecimal */
#define INFINITY_BITS 0x7f800000u

struct trainer_fp8 {
    const struct kernel_memory *memory;
    int64_t count;
    struct arena pinned;
    float *scale, *unscale, *largest; /* [count] in pinned */
    float *history; /* [TRAINER_FP8_STEPS][count], newest first */
    int64_t *bits;  /* [count] */
};

static size_t row_bytes(const struct trainer_fp8 *fp8)
{
    return (size_t)fp8->count * sizeof(float);
}

static float scale_for(float format_largest, float largest)
{
    if (largest == 0.0f)
        return 1.0f;
    /* exact: a quotient of two floats is not within a double's rounding of a
     * power of two unless it is one */
    int exponent = ilogb((double)format_largest / (double)largest);
    exponent = exponent > EXPONENT_MAX ? EXPONENT_MAX : exponent;
    exponent = exponent < -EXPONENT_MAX ? -EXPONENT_MAX : exponent;
    return ldexpf(1.0f, exponent);
}

static void make_scales(struct trainer_fp8 *fp8)
{
    for (int64_t i = 0; i < fp8->count; i++) {
        float largest = 0.0f;
        for (int64_t step = 0; step < TRAINER_FP8_STEPS; step++)
            largest = fmaxf(largest, fp8->history[step * fp8->count + i]);
        fp8->scale[i] = scale_for(model_fp8_largest(i), largest);
        fp8->unscale[i] = 1.0f / fp8->scale[i];
    }
}

enum err trainer_fp8_create(const struct kernel_memory *memory, int64_t count,
                            struct trainer_fp8 **out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct trainer_fp8 *fp8 = NULL;
    assert(count > 0);
    *out = NULL;
    TRY(new_zeroed(&fp8, 1));
    fp8->memory = memory;
    fp8->count = count;
    TRY_OUT(new_zeroed(&fp8->history, TRAINER_FP8_STEPS * (size_t)count));
    TRY_OUT(new_zeroed(&fp8->bits, (size_t)count));
    for (int i = 0; i < 3; i++)
        (void)arena_take(&plan, row_bytes(fp8));
    TRY_OUT(memory->host_create(plan.used, &fp8->pinned));
    fp8->scale = arena_take(&fp8->pinned, row_bytes(fp8));
    fp8->unscale = arena_take(&fp8->pinned, row_bytes(fp8));
    fp8->largest = arena_take(&fp8->pinned, row_bytes(fp8));
    make_scales(fp8);
out:
    return new_or_none(rc, fp8, out, trainer_fp8_destroy);
}

void trainer_fp8_destroy(struct trainer_fp8 *fp8)
{
    if (fp8 == NULL)
        return;
    fp8->memory->host_destroy(&fp8->pinned);
    free(fp8->history);
    free(fp8->bits);
    free(fp8);
}

enum err trainer_fp8_give(const struct trainer_fp8 *fp8, struct model *model)
{
    return model_fp8_upload(model, fp8->scale, fp8->unscale);
}

float *trainer_fp8_found(struct trainer_fp8 *fp8)
{
    return fp8->largest;
}

/* Floats that are not negative have the order of their bits. */
enum err trainer_fp8_learn(struct trainer_fp8 *fp8, struct comm *comm)
{
    size_t row = row_bytes(fp8);
    uint32_t word;
    for (int64_t i = 0; i < fp8->count; i++) {
        memcpy(&word, &fp8->largest[i], sizeof word);
        fp8->bits[i] = word;
    }
    TRY(comm_all_reduce_i64(comm, fp8->bits, (size_t)fp8->count, COMM_MAX));
    memmove((char *)fp8->history + row, fp8->history,
            (TRAINER_FP8_STEPS - 1) * row);
    for (int64_t i = 0; i < fp8->count; i++) {
        word = (uint32_t)fp8->bits[i];
        memcpy(&fp8->history[i], &word, sizeof word);
    }
    make_scales(fp8);
    return ERR_OK;
}

const float *trainer_fp8_scales(const struct trainer_fp8 *fp8)
{
    return fp8->scale;
}

const float *trainer_fp8_unscales(const struct trainer_fp8 *fp8)
{
    return fp8->unscale;
}

enum err trainer_fp8_store(const struct trainer_fp8 *fp8, json_t *state)
{
    if (fp8 == NULL)
        return ERR_OK;
    size_t numbers = TRAINER_FP8_STEPS * (size_t)fp8->count;
    char *text = malloc(numbers * DIGITS + 1);
    bool stored = text != NULL;
    for (size_t i = 0; stored && i < numbers; i++) {
        uint32_t word;
        memcpy(&word, &fp8->history[i], sizeof word);
        snprintf(text + i * DIGITS, DIGITS + 1, "%08x", word);
    }
    stored = stored && json_object_set_new(state, KEY, json_string(text)) == 0;
    free(text);
    return stored ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

/* false: it is not a finite number without a sign. */
static bool read_number(const char *digits, float *out)
{
    char number[DIGITS + 1] = "";
    memcpy(number, digits, DIGITS);
    uint32_t word = (uint32_t)strtoul(number, NULL, 16);
    memcpy(out, &word, sizeof *out);
    return strspn(number, "0123456789abcdef") == DIGITS && word < INFINITY_BITS;
}

enum err trainer_fp8_restore(struct trainer_fp8 *fp8, const json_t *state)
{
    const char *text = json_string_value(json_object_get(state, KEY));
    if (fp8 == NULL)
        return ERR_OK;
    size_t numbers = TRAINER_FP8_STEPS * (size_t)fp8->count;
    bool fine = text != NULL && strlen(text) == numbers * DIGITS;
    float *history = NULL;
    TRY(new_room(&history, numbers));
    for (size_t i = 0; fine && i < numbers; i++)
        fine = read_number(text + i * DIGITS, &history[i]);
    if (!fine) {
        free(history);
        return err_set(ERR_CHECKPOINT,
                       "the checkpoint has no history of %lld scales for "
                       "train.precision = fp8: go on from another one, or "
                       "start a new run",
                       (long long)fp8->count);
    }
    free(fp8->history);
    fp8->history = history;
    make_scales(fp8);
    return ERR_OK;
}
