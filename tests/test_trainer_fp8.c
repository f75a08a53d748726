/* Scales of 8-bit operands: what they are after some batches, and the way of
 * their history through a checkpoint's state. */
#include "src/train/run/trainer_fp8.h"

#include "tests/tap.h"

#define COUNT 12 /* of one block */
#define X 0      /* up to 448 */
#define DY 2     /* up to 57344 */
#define STEPS_MAX 20

/* The same magnitudes for all operands, one a batch. */
static const struct {
    const char *name;
    float found[STEPS_MAX];
    int steps;
    float x, dy; /* scales */
} cases[] = {
    { "nothing yet", TUPLE(0.0f), 0, 1.0f, 1.0f },
    { "zeros", TUPLE(0.0f, 0.0f), 2, 1.0f, 1.0f },
    { "one", TUPLE(1.0f), 1, 256.0f, 32768.0f },
    { "exactly the largest", TUPLE(448.0f), 1, 1.0f, 128.0f },
    { "a bit more", TUPLE(0x1.c00002p+8f), 1, 0.5f, 64.0f },
    { "a bit less", TUPLE(0x1.bffffep+8f), 1, 1.0f, 128.0f },
    { "the gradients' largest", TUPLE(57344.0f), 1, 0x1p-7f, 1.0f },
    { "a power of two times it", TUPLE(3.5f), 1, 128.0f, 16384.0f },
    { "the largest counts", TUPLE(2.0f, 7.0f, 3.0f), 3, 64.0f, 8192.0f },
    { "zeros do not", TUPLE(7.0f, 0.0f, 0.0f), 3, 64.0f, 8192.0f },
    { "sixteen batches long",
      TUPLE(7.0f, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 16, 64.0f,
      8192.0f },
    { "and no longer",
      TUPLE(7.0f, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 17, 256.0f,
      32768.0f },
    { "then zeros are all there is",
      TUPLE(7.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 17, 1.0f,
      1.0f },
    { "the smallest there is", TUPLE(0x1p-149f), 1, 0x1p60f, 0x1p60f },
    { "the largest there is", TUPLE(0x1.fffffep+127f), 1, 0x1p-60f, 0x1p-60f },
};

struct world {
    struct comm *comm;
};

static struct trainer_fp8 *history(void)
{
    struct trainer_fp8 *fp8 = NULL;
    if (trainer_fp8_create(&kernel_memory_cpu, COUNT, &fp8) != ERR_OK)
        abort();
    return fp8;
}

static void batch(const struct world *world, struct trainer_fp8 *fp8, float x)
{
    for (int i = 0; i < COUNT; i++)
        trainer_fp8_found(fp8)[i] = x;
    if (trainer_fp8_learn(fp8, world->comm) != ERR_OK)
        abort();
}

static void test_scales(const struct world *world)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trainer_fp8 *fp8 = history();
        for (int step = 0; step < cases[i].steps; step++)
            batch(world, fp8, cases[i].found[step]);
        const float *scale = trainer_fp8_scales(fp8);
        const float *unscale = trainer_fp8_unscales(fp8);
        if (!tap_ok(scale[X] == cases[i].x && scale[DY] == cases[i].dy, "%s",
                    cases[i].name))
            tap_note("%a and %a", (double)scale[X], (double)scale[DY]);
        bool inverse = true;
        for (int j = 0; j < COUNT; j++)
            inverse = inverse && scale[j] * unscale[j] == 1.0f &&
                      isnormal(unscale[j] * unscale[(j + 1) % COUNT]);
        tap_ok(inverse, "%s: products are scaled back", cases[i].name);
        trainer_fp8_destroy(fp8);
    }
}

/* Each operand has its own. */
static void test_operands(const struct world *world)
{
    struct trainer_fp8 *fp8 = history();
    bool own = true;
    for (int i = 0; i < COUNT; i++)
        trainer_fp8_found(fp8)[i] = ldexpf(1.75f, i - 20);
    own = trainer_fp8_learn(fp8, world->comm) == ERR_OK;
    for (int i = 0; i < COUNT; i++) {
        int top = i % 3 == DY ? 15 : 8; /* 1.75 x 2^top is the largest */
        own = own && trainer_fp8_scales(fp8)[i] == ldexpf(1.0f, top - (i - 20));
    }
    tap_ok(own, "each operand has a scale of its own");
    trainer_fp8_destroy(fp8);
}

/* --- a checkpoint's state --- */

static bool same_scales(const struct trainer_fp8 *a,
                        const struct trainer_fp8 *b)
{
    return memcmp(trainer_fp8_scales(a), trainer_fp8_scales(b),
                  COUNT * sizeof(float)) == 0 &&
           memcmp(trainer_fp8_unscales(a), trainer_fp8_unscales(b),
                  COUNT * sizeof(float)) == 0;
}

/* Through the text of a file. Odd numbers, of all sizes, in rising order, so
 * that each that leaves the history shows in the scales of the next batches. */
static void test_round_trip(const struct world *world)
{
    struct trainer_fp8 *whole = history(), *again = history();
    json_t *state = json_object(), *read = NULL;
    for (int step = 0; step < 21; step++)
        batch(world, whole, (1.0f + 1.0f / 3.0f) * ldexpf(1.0f, 60 - 6 * step));
    tap_ok(trainer_fp8_store(whole, state) == ERR_OK, "stored");
    char *text = json_dumps(state, JSON_INDENT(1));
    read = json_loads(text != NULL ? text : "", 0, NULL);
    tap_ok(trainer_fp8_restore(again, read) == ERR_OK &&
               same_scales(whole, again),
           "restored: %s", err_text());
    bool same = true;
    for (int step = 0; step < TRAINER_FP8_STEPS; step++) {
        batch(world, whole, 0.0f);
        batch(world, again, 0.0f);
        same = same && same_scales(whole, again);
    }
    tap_ok(same, "and forgets at the same steps");
    json_t *other = json_object();
    tap_ok(trainer_fp8_restore(again, read) == ERR_OK &&
               trainer_fp8_store(again, other) == ERR_OK &&
               json_equal(state, other),
           "stored again it is the same text");
    tap_ok(trainer_fp8_store(NULL, other) == ERR_OK &&
               trainer_fp8_restore(NULL, other) == ERR_OK,
           "without a history there is nothing to do");
    free(text);
    json_decref(state);
    json_decref(read);
    json_decref(other);
    trainer_fp8_destroy(whole);
    trainer_fp8_destroy(again);
}

/* What is at the place of one number, the rest zeros; NULL: no text at all. */
static const struct {
    const char *name, *digits;
    int numbers;
} damaged[] = {
    { "no history", NULL, 0 },
    { "one of fewer operands", "00000000", TRAINER_FP8_STEPS *(COUNT - 1) },
    { "one of more operands", "00000000", TRAINER_FP8_STEPS *(COUNT + 1) },
    { "one of fewer steps", "00000000", (TRAINER_FP8_STEPS - 1) * COUNT },
    { "infinity", "7f800000", TRAINER_FP8_STEPS *COUNT },
    { "not a number", "7fc00000", TRAINER_FP8_STEPS *COUNT },
    { "a negative one", "bf800000", TRAINER_FP8_STEPS *COUNT },
    { "a sign", "-0000001", TRAINER_FP8_STEPS *COUNT },
    { "a blank", " 0000001", TRAINER_FP8_STEPS *COUNT },
    { "another letter", "0000000g", TRAINER_FP8_STEPS *COUNT },
};

static void test_damage(const struct world *world)
{
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct trainer_fp8 *fp8 = history(), *before = history();
        json_t *state = json_object();
        size_t length = 8 * (size_t)damaged[i].numbers;
        char *text = malloc(length + 1);
        if (text == NULL)
            abort();
        memset(text, '0', length);
        text[length] = '\0';
        if (damaged[i].digits != NULL) {
            memcpy(text + length - 8 * COUNT, damaged[i].digits, 8);
            json_object_set_new(state, "fp8", json_string(text));
        }
        batch(world, fp8, 5.0f);
        batch(world, before, 5.0f);
        tap_ok(trainer_fp8_restore(fp8, state) == ERR_CHECKPOINT &&
                   strstr(err_text(), "train.precision") != NULL &&
                   same_scales(fp8, before),
               "refused: %s", damaged[i].name);
        free(text);
        json_decref(state);
        trainer_fp8_destroy(fp8);
        trainer_fp8_destroy(before);
    }
}

int main(int argc, char **argv)
{
    struct world world = { 0 };
    if (comm_create("self", &argc, &argv, 60.0, &world.comm) != ERR_OK)
        return 1;
    test_scales(&world);
    test_operands(&world);
    test_round_trip(&world);
    test_damage(&world);
    comm_destroy(world.comm);
    return tap_done();
}
