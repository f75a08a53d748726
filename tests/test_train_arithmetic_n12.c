/* Which arithmetic a run may go on with: that of any kernel set, on any rank,
 * without a word; that of other versions only where the user allows it. */
#include "checkpoint/files/ckpt_manifest.h"
#include "src/train/loop/trainer.h"
#include "src/train/start/start.h"
#include "tests/trainer_world.h"

#include <jansson.h>

#define SAMPLES 32
#define SEQ_LEN 16
#define STEPS 3
#define BEFORE "cpu/avx512 OpenBLAS 0.3.21 SkylakeX"
#define LATER "cpu arithmetic 999"
#define NOW "cpu arithmetic 1, sums 2"
#define SUMS_BEFORE "cpu arithmetic 1" /* whose version had no name */
#define PLAIN "parallel.determinism=elastic"
#define ALLOWED "parallel.allow_arithmetic_change=true"

static const char *set_name(int number)
{
    const struct kernels *const *all = kernels_all();
    int count = 0;
    while (all[count] != NULL && strcmp(all[count]->backend, "cpu") == 0)
        count++;
    return all[number % count]->kernel_set;
}

/* Opens the run with this rank's kernel set; with `claims` it computes as
 * always but says that this is its arithmetic. */
static enum err open_run(struct world *world, const char *name, const char *set,
                         const char *more, const char *claims, struct run **out)
{
    enum err rc = ERR_OK;
    struct train_settings *settings = calloc(1, sizeof *settings);
    *out = NULL;
    TRY_OUT(run_settings(
        settings,
        "run.dir=%s/%s data.train=%s/data hardware.kernel_set=%s %s "
        "hardware.backend=cpu hardware.threads=1 train.max_duration=9ba "
        "train.global_batch=4 train.microbatch=1 parallel.slots=4 "
        "data.seq_len=16 checkpoint.interval=3ba checkpoint.keep=9 "
        "model.d_model=32 model.n_heads=2 model.n_layers=2",
        world->folder, name, world->folder, set, more));
    TRY_OUT(fsio_mkdirs(settings->run.dir));
    TRY_OUT(trainer_create(world->comm, settings, 1, out));
    if (claims != NULL)
        snprintf((*out)->engine.arithmetic, sizeof(*out)->engine.arithmetic,
                 "%s", claims);
    TRY_OUT(events_listen_table(&(*out)->events, "checkpoint", *out));
    TRY_OUT(trainer_start(*out));
out:
    free(settings);
    return rc;
}

/* STEPS steps more and their checkpoint. */
static enum err go_on(struct world *world, const char *name, const char *set,
                      const char *more, const char *claims)
{
    enum err rc = ERR_OK;
    struct run *run;
    TRY_OUT(open_run(world, name, set, more, claims, &run));
    for (int i = 0; i < STEPS; i++) {
        TRY_OUT(trainer_step(run));
        run->now.finished = i == STEPS - 1; /* the save is awaited */
        TRY_OUT(trainer_event(run, EVENT_BATCH_CHECKPOINT));
    }
out:
    trainer_destroy(run);
    return rc;
}

/* Whether the step's checkpoint lists these, separated by commas, and no other
 * arithmetic. */
static bool lists(struct world *world, const char *name, int64_t step,
                  const char *wanted)
{
    char path[FSIO_PATH_MAX], list[512] = "";
    struct ckpt_manifest *manifest = NULL;
    if (fsio_path(path, "%s/%s/checkpoints/step-%09lld", world->folder, name,
                  (long long)step) != ERR_OK ||
        ckpt_manifest_read(path, NULL, NULL, &manifest) != ERR_OK)
        return false;
    const json_t *all = json_object_get(manifest->state, "arithmetic");
    for (size_t i = 0; i < json_array_size(all); i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                 i > 0 ? "," : "", json_string_value(json_array_get(all, i)));
    ckpt_manifest_destroy(manifest);
    if (strcmp(list, wanted) != 0)
        tap_note("%s: %s", name, list);
    return strcmp(list, wanted) == 0;
}

/* The last checkpoints of two runs. */
static bool same_bits(struct world *world, const char *a, const char *b,
                      int64_t step)
{
    const char *names[] = { a, b };
    char path[FSIO_PATH_MAX], digests[2][65] = { "", "-" };
    for (int i = 0; i < 2; i++)
        if (fsio_path(path, "%s/%s/checkpoints/step-%09lld", world->folder,
                      names[i], (long long)step) != ERR_OK ||
            ckpt_digest(path, digests[i]) != ERR_OK)
            return false;
    return strcmp(digests[0], digests[1]) == 0;
}

static void test_sets(struct world *world)
{
    enum err rc = ERR_OK;
    for (int start = 0; start < 3 && rc == ERR_OK; start++)
        rc = go_on(world, "undisturbed", set_name(0), PLAIN, NULL);
    everywhere(world, rc == ERR_OK, "the best kernel set");
    for (int start = 0; start < 3; start++) {
        rc = go_on(world, "sets", set_name(start), PLAIN, NULL);
        everywhere(world, rc == ERR_OK, set_name(start));
    }
    everywhere(world, lists(world, "sets", 3 * STEPS, NOW),
               "a run goes on with any kernel set, and is one run");
    everywhere(world, same_bits(world, "sets", "undisturbed", 3 * STEPS),
               "to the bits of the best one alone");
}

/* Each rank another one. */
static void test_mixed(struct world *world)
{
    static const char *const modes[] = { "elastic", "run", "fast" };
    char more[64];
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more, "parallel.determinism=%s", modes[i]);
        enum err rc = go_on(world, modes[i], set_name(world->rank), more, NULL);
        everywhere(world, rc == ERR_OK, more);
    }
    everywhere(world, same_bits(world, modes[0], "undisturbed", STEPS),
               "ranks with several kernel sets: the bits of one");
}

static void test_before(struct world *world)
{
    const char *set = set_name(0);
    enum err rc = go_on(world, "old", set, PLAIN, BEFORE);
    everywhere(world, rc == ERR_OK && lists(world, "old", STEPS, BEFORE),
               "a run of another arithmetic");
    rc = go_on(world, "old", set, PLAIN, NULL);
    everywhere(world,
               rc == ERR_CHECKPOINT && strstr(err_text(), BEFORE) != NULL &&
                   strstr(err_text(), ALLOWED) != NULL,
               "is refused, by its name and with what to do");
    rc = go_on(world, "old", set, ALLOWED, NULL);
    everywhere(world,
               rc == ERR_OK && lists(world, "old", 2 * STEPS, BEFORE "," NOW),
               "goes on where that is allowed, and its checkpoints tell");
    rc = go_on(world, "old", set, PLAIN, NULL);
    everywhere(world, rc == ERR_OK, "and then it need not be allowed again");
    rc = go_on(world, "later", set, PLAIN, LATER);
    if (rc == ERR_OK)
        rc = go_on(world, "later", set, PLAIN, NULL);
    everywhere(world, rc == ERR_CHECKPOINT && strstr(err_text(), LATER) != NULL,
               "so is a later one");
    rc = go_on(world, "sums", set, PLAIN, SUMS_BEFORE);
    if (rc == ERR_OK)
        rc = go_on(world, "sums", set, PLAIN, NULL);
    everywhere(world,
               rc == ERR_CHECKPOINT && strstr(err_text(), "version") != NULL,
               "so is one whose values were added in another order");
    rc = go_on(world, "loose", set, "parallel.determinism=fast", BEFORE);
    if (rc == ERR_OK)
        rc = go_on(world, "loose", set, "parallel.determinism=fast", NULL);
    everywhere(world, rc == ERR_OK, "fast takes any");
}

/* Zigzag has another order of chunks, which only a run with chunks has. */
static void test_chunks(struct world *world)
{
    const char *set = set_name(0);
    const char *more = "parallel.strategy=zero2 parallel.sequence_chunks=4 "
                       "parallel.allow_arithmetic_change=true";
    enum err rc =
        go_on(world, "chunks", set,
              "parallel.strategy=zero2 parallel.sequence_chunks=4", NOW);
    if (rc == ERR_OK)
        rc = go_on(world, "chunks", set,
                   "parallel.strategy=zero2 parallel.sequence_chunks=4", NULL);
    everywhere(world, rc == ERR_CHECKPOINT && strstr(err_text(), NOW) != NULL,
               "chunks that were neighbours on their ranks are refused");
    rc = go_on(world, "chunks", set, more, NULL);
    everywhere(world,
               rc == ERR_OK &&
                   lists(world, "chunks", 2 * STEPS, NOW "," NOW ", chunks 2"),
               "and go on where that is allowed");
}

/* Ranks of one start. */
static void test_same(struct world *world)
{
    struct run *run;
    if (world->ranks == 1)
        return;
    enum err rc = open_run(world, "same", set_name(0), PLAIN, NULL, &run);
    if (rc == ERR_OK && world->rank == 1)
        snprintf(run->engine.arithmetic, sizeof run->engine.arithmetic, LATER);
    if (rc == ERR_OK)
        rc = start_same(run);
    everywhere(world,
               rc == ERR_UNSUPPORTED && strstr(err_text(), LATER) != NULL,
               "ranks with other versions are refused");
    trainer_destroy(run);
}

static void tests(struct world *world)
{
    test_sets(world);
    test_mixed(world);
    test_before(world);
    test_chunks(world);
    test_same(world);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, SAMPLES, SEQ_LEN, tests);
}
