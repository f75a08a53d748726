/* Algorithms that are chosen by measurement: once per run, by rank 0, taken by
 * all ranks and by every later attempt, from a checkpoint or from the run
 * directory. Works with any number of ranks up to the slots. */
#include "src/base/clock.h"
#include "src/comm/comm_impl.h"
#include "src/train/loop/trainer.h"
#include "src/train/start/start.h"
#include "tests/trainer_world.h"

#define SAMPLES 32
#define SEQ_LEN 32

/* A table with something to choose: how often it was asked, and what is in
 * use. */
static int measured, embeddings;
static size_t measured_bytes, asked_bytes;
static double measure_s; /* that it takes */
static char chosen[64];
static const char *installed = "1"; /* version of the library */
static const struct kernels *whole;
static size_t largest; /* arena that there is memory for */

static enum err table_measure(const struct kernel_ctx *ctx, void *memory,
                              size_t bytes)
{
    const uint32_t *words = memory;
    bool ordinary = true;
    (void)ctx;
    for (size_t i = 0; i < 1000; i++)
        ordinary = ordinary && words[i] != 0 && (words[i] >> 23 & 0xff) < 127 &&
                   (words[i] >> 23 & 0xff) > 0;
    clock_sleep(measure_s);
    measured++;
    measured_bytes = ordinary ? bytes : 0;
    memset(memory, 0x5a, bytes);
    return ERR_OK;
}

static enum err crowded_create(size_t bytes, struct arena *out)
{
    asked_bytes = bytes > asked_bytes ? bytes : asked_bytes;
    if (bytes > largest)
        return err_set(ERR_MEMORY, "no memory for %zu bytes", bytes);
    return whole->memory->tensors_create(bytes, out);
}

static enum err table_choices(char **text)
{
    *text = NULL;
    if (asprintf(text, "%s %s\n", installed,
                 measured > 0 ? "measured" : "proposed") < 0)
        return err_set(ERR_MEMORY, "no memory");
    return ERR_OK;
}

static enum err table_choose(const struct kernel_ctx *ctx, const char *text)
{
    if (ctx->scratch_bytes == 0 || text[0] != installed[0])
        return err_set(ERR_UNSUPPORTED, "library %c is not here", text[0]);
    snprintf(chosen, sizeof chosen, "%s", text);
    return ERR_OK;
}

static enum err count_embedding KERNEL_LIKE(embedding_forward)
{
    embeddings++;
    return whole->embedding_forward(ctx, dtype, n, seq, d, tokens, wte, wpe,
                                    out);
}

static enum err open_run(struct world *world, const char *name,
                         const char *determinism, struct run **out)
{
    static struct kernels table;
    static struct kernel_memory memory;
    enum err rc = ERR_OK;
    struct train_settings *settings = calloc(1, sizeof *settings);
    *out = NULL;
    TRY_OUT(run_settings(
        settings,
        "run.dir=%s/%s data.train=%s/data parallel.determinism=%s "
        "train.max_duration=4ba train.global_batch=16 train.microbatch=1 "
        "parallel.slots=4 data.seq_len=32 hardware.threads=1 "
        "checkpoint.interval=1ba model.n_layers=1",
        world->folder, name, world->folder, determinism));
    TRY_OUT(fsio_mkdirs(settings->run.dir));
    TRY_OUT(trainer_create(world->comm, settings, 1, out));
    TRY_OUT(events_listen_table(&(*out)->events, "checkpoint", *out));
    whole = (*out)->engine.kernels;
    table = *whole;
    table.measure = table_measure;
    table.choices = table_choices;
    table.choose = table_choose;
    table.embedding_forward = count_embedding;
    memory = *whole->memory;
    memory.tensors_create = crowded_create;
    largest = (size_t)64 << 20;
    table.memory = &memory;
    (*out)->engine.kernels = &table;
    /* the model takes the table, too */
    TRY_OUT(trainer_memory_adopt(*out, 1));
    measured = embeddings = 0;
    asked_bytes = 0;
    snprintf(chosen, sizeof chosen, "none");
    TRY_OUT(trainer_start(*out));
out:
    free(settings);
    return rc;
}

/* One step, with its checkpoint. */
static enum err go_on(struct run *run)
{
    TRY(trainer_step(run));
    run->now.finished = true; /* the save is awaited */
    return trainer_event(run, EVENT_BATCH_CHECKPOINT);
}

static void test_fresh(struct world *world)
{
    struct run *run;
    bool first = world->rank == 0;
    enum err rc = open_run(world, "run", "elastic", &run);
    double before = rc == ERR_OK ? run->position.elapsed_s : 0;
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    everywhere(world, rc == ERR_OK && measured == (first ? 1 : 0),
               "a fresh run is measured, once, by rank 0");
    everywhere(world, !first || measured_bytes == (size_t)64 << 20,
               "in memory of ordinary numbers");
    everywhere(world, !first || asked_bytes == (size_t)2 << 30,
               "as much of it as there is");
    everywhere(world, embeddings == 1,
               "after one microbatch, not the whole batch");
    everywhere(world, strcmp(chosen, "1 measured\n") == 0,
               "all ranks take what rank 0 measured");
    everywhere(world,
               run->position.step == 0 && run->position.elapsed_s == before,
               "the run has not moved");
    trainer_destroy(run);
    rc = open_run(world, "run", "elastic", &run);
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    everywhere(world,
               rc == ERR_OK && measured == 0 && embeddings == 0 &&
                   strcmp(chosen, "1 measured\n") == 0,
               "killed before its first checkpoint, it takes the same again");
    if (rc == ERR_OK)
        rc = go_on(run);
    everywhere(world, rc == ERR_OK, "a step and a checkpoint");
    trainer_destroy(run);
}

static void test_resumed(struct world *world)
{
    char path[FSIO_PATH_MAX];
    struct run *run;
    enum err rc = fsio_path(path, "%s/run/choices", world->folder);
    if (world->rank == 0 && rc == ERR_OK)
        rc = fsio_remove_tree(path);
    comm_barrier(world->comm);
    if (rc == ERR_OK)
        rc = open_run(world, "run", "elastic", &run);
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    everywhere(world,
               rc == ERR_OK && run->position.step == 1 && measured == 0 &&
                   strcmp(chosen, "1 measured\n") == 0,
               "a checkpoint has them, too");
    trainer_destroy(run);
    installed = "2";
    rc = open_run(world, "run", "elastic", &run);
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    everywhere(world, rc == ERR_UNSUPPORTED && measured == 0,
               "another library: elastic refuses");
    trainer_destroy(run);
    installed = "1";
}

static void test_fast(struct world *world)
{
    struct run *run;
    enum err rc = open_run(world, "quick", "fast", &run);
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    if (rc == ERR_OK)
        rc = go_on(run);
    trainer_destroy(run);
    installed = "2";
    if (rc == ERR_OK)
        rc = open_run(world, "quick", "fast", &run);
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    everywhere(world,
               rc == ERR_OK && run->position.step == 1 &&
                   strcmp(chosen, "2 measured\n") == 0,
               "another library: \"fast\" measures anew");
    trainer_destroy(run);
    installed = "1";
}

static void test_no_step(struct world *world)
{
    struct run *run;
    enum err rc = open_run(world, "anew", "elastic", &run);
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    trainer_destroy(run);
    installed = "2";
    if (rc == ERR_OK)
        rc = open_run(world, "anew", "elastic", &run);
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    everywhere(world, rc == ERR_OK && strcmp(chosen, "2 measured\n") == 0,
               "another library: a start that made no step binds nothing");
    trainer_destroy(run);
    installed = "1";
}

/* The others wait as long as rank 0 measures. */
static void test_slow(struct world *world)
{
    struct run *run;
    double timeout_s = world->comm->timeout_s;
    enum err rc = open_run(world, "slow", "elastic", &run);
    world->comm->timeout_s = 2.0;
    measure_s = 5.0;
    if (rc == ERR_OK)
        rc = trainer_choices_settle(run);
    world->comm->timeout_s = timeout_s;
    measure_s = 0.0;
    everywhere(world, rc == ERR_OK && strcmp(chosen, "1 measured\n") == 0,
               "measuring may take longer than a deadline");
    trainer_destroy(run);
}

/* The warm-up changes no bit, nor does measuring, also not where that has no
 * memory of its own. */
static void test_same(struct world *world)
{
    struct run *with, *without;
    enum err rc = open_run(world, "with", "elastic", &with);
    largest = 10000;
    if (rc == ERR_OK)
        rc = trainer_choices_settle(with);
    everywhere(world,
               rc == ERR_OK &&
                   (world->rank != 0 || (measured_bytes > 10000 &&
                                         measured_bytes < (size_t)64 << 20)),
               "without memory, algorithms are measured in the model's");
    for (int i = 0; i < 2 && rc == ERR_OK; i++)
        rc = trainer_step(with);
    double loss = rc == ERR_OK ? with->now.record.loss : -1;
    double norm = rc == ERR_OK ? with->now.record.grad_norm : -1;
    trainer_destroy(with);
    rc = open_run(world, "without", "elastic", &without);
    for (int i = 0; i < 2 && rc == ERR_OK; i++)
        rc = trainer_step(without);
    everywhere(world,
               rc == ERR_OK && without->now.record.loss == loss &&
                   without->now.record.grad_norm == norm,
               "the steps are those of a run without it");
    trainer_destroy(without);
}

static void run_tests(struct world *world)
{
    test_fresh(world);
    test_resumed(world);
    test_no_step(world);
    test_fast(world);
    test_slow(world);
    test_same(world);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, SAMPLES, SEQ_LEN, run_tests);
}
