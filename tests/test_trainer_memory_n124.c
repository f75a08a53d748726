/* Too little memory in a run: all ranks go on with a smaller microbatch and the
 * same batch, or stop, whichever rank it was. Works with any number of ranks up
 * to the slots. */
#include "src/train/loop/trainer.h"
#include "src/train/start/start.h"
#include "tests/trainer_world.h"

#define SAMPLES 32
#define SEQ_LEN 128

/* An op that finds no memory the next so many times. */
static const struct kernels *whole;
static int failures;

static enum err failing_embedding KERNEL_LIKE(embedding_forward)
{
    if (failures > 0) {
        failures--;
        return err_set(ERR_MEMORY, "injected");
    }
    return whole->embedding_forward(ctx, dtype, n, seq, d, tokens, wte, wpe,
                                    out);
}

static enum err open_run(struct world *world, const char *determinism,
                         int microbatch, int64_t limit, struct run **out)
{
    enum err rc = ERR_OK;
    struct train_settings *settings = calloc(1, sizeof *settings);
    TRY_OUT(run_settings(
        settings,
        "run.dir=%s/run data.train=%s/data parallel.determinism=%s "
        "train.microbatch=%d memory.limit=%lldB train.max_duration=4ba "
        "train.global_batch=16 parallel.slots=4 data.seq_len=128 "
        "hardware.threads=1 model.n_layers=2 parallel.strategy=zero1",
        world->folder, world->folder, determinism, microbatch,
        (long long)limit));
    TRY_OUT(trainer_create(world->comm, settings, 1, out));
    TRY_OUT(trainer_start(*out));
out:
    free(settings);
    return rc;
}

/* From here on the last rank's model fails so often. */
static enum err inject(struct world *world, struct run *run, int times)
{
    static struct kernels table;
    whole = run->engine.kernels;
    table = *whole;
    table.embedding_forward = failing_embedding;
    run->engine.kernels = &table;
    failures = world->rank == world->ranks - 1 ? times : 0;
    return trainer_memory_adopt(run, run->settings.train.microbatch);
}

static bool same_weights(const struct run *a, const struct run *b)
{
    int count;
    const struct ckpt_item *one = replica_items(a->engine.replica, &count);
    const struct ckpt_item *other = replica_items(b->engine.replica, &count);
    bool same = true;
    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)(one[i].part.end - one[i].part.begin) * 4;
        same = same &&
               (bytes == 0 || memcmp(one[i].data, other[i].data, bytes) == 0);
    }
    return same;
}

static void test_retry(struct world *world, const char *determinism)
{
    struct run *disturbed = NULL;
    struct run *small = NULL;
    enum err rc = open_run(world, determinism, 4, 0, &disturbed);
    if (rc == ERR_OK)
        rc = inject(world, disturbed, 1);
    everywhere(world, rc == ERR_OK, determinism);
    if (rc == ERR_OK)
        rc = trainer_step(disturbed);
    everywhere(world, rc == ERR_OK && disturbed->position.step == 1,
               "no memory on the last rank: the batch is trained");
    everywhere(world, disturbed->settings.train.microbatch == 2,
               "with half of the microbatch, on all ranks");
    rc = open_run(world, determinism, 2, 0, &small);
    if (rc == ERR_OK)
        rc = trainer_step(small);
    everywhere(world, rc == ERR_OK && same_weights(disturbed, small),
               "it was the same batch: the bits of a run that began so");
    trainer_destroy(small);
    failures = world->rank == world->ranks - 1 ? 1000 : 0;
    rc = trainer_step(disturbed);
    everywhere(world,
               rc == ERR_MEMORY && strstr(err_text(), "injected") != NULL &&
                   disturbed->settings.train.microbatch == 1 &&
                   disturbed->position.step == 1,
               "not even for one sample: the run stops with the reason");
    trainer_destroy(disturbed);
    failures = 0;
}

static void test_elastic(struct world *world)
{
    struct run *run = NULL;
    enum err rc = open_run(world, "elastic", 4, 0, &run);
    if (rc == ERR_OK)
        rc = inject(world, run, 1);
    everywhere(world, rc == ERR_OK, "elastic");
    if (rc == ERR_OK) {
        run->settings.once = true;
        rc = trainer_step(run);
    }
    everywhere(world,
               rc == ERR_OK && run->position.step == 1 && !run->settings.once &&
                   run->settings.train.microbatch == 4,
               "sums that wait for other shard groups go first: same bits");
    failures = world->rank == world->ranks - 1;
    rc = trainer_step(run);
    everywhere(world,
               rc == ERR_MEMORY && run->position.step == 1 &&
                   run->settings.train.microbatch == 4,
               "the microbatch decides bits: it stays, and all ranks stop");
    trainer_destroy(run);
    failures = 0;
}

static void test_limit(struct world *world)
{
    struct run *run = NULL;
    struct memory_plan plan = { 0 };
    enum err rc = open_run(world, "elastic", 2, 0, &run);
    if (rc == ERR_OK)
        rc = trainer_memory_plan(run, &plan);
    everywhere(world, rc == ERR_OK && plan.total > 0, "the plan of 2 samples");
    trainer_destroy(run);
    run = NULL;
    int64_t limit = (int64_t)plan.total;
    rc = open_run(world, "elastic", 2, limit, &run);
    everywhere(world, rc == ERR_OK, "fits into just as much");
    trainer_destroy(run);
    run = NULL;
    rc = open_run(world, "elastic", 4, limit, &run);
    everywhere(world,
               rc == ERR_MEMORY && run == NULL &&
                   strstr(err_text(), "memory.limit") != NULL &&
                   strstr(err_text(), "train.microbatch=2") != NULL,
               "elastic: 4 do not, and the error says that 2 would");
    trainer_destroy(run);
    run = NULL;
    rc = open_run(world, "fast", 2, 0, &run);
    if (rc == ERR_OK)
        rc = trainer_memory_plan(run, &plan);
    trainer_destroy(run);
    run = NULL;
    if (rc == ERR_OK)
        rc = open_run(world, "fast", 4, (int64_t)plan.total, &run);
    everywhere(world,
               rc == ERR_OK && run->settings.train.microbatch == 2 &&
                   run->engine.shrunk && trainer_step(run) == ERR_OK,
               "fast: goes on with fewer");
    trainer_destroy(run);
    run = NULL;
    rc = open_run(world, "run", 4, 1 << 20, &run);
    everywhere(world, rc == ERR_MEMORY, "run: nothing fits into 1 MiB");
    trainer_destroy(run);
}

static void run_tests(struct world *world)
{
    test_retry(world, "fast");
    test_retry(world, "run");
    test_elastic(world);
    test_limit(world);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, SAMPLES, SEQ_LEN, run_tests);
}
