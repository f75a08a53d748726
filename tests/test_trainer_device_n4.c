/* Ranks that train together on devices whose tensors the host can't touch and
 * where everything is done late (cuda_emulator_memory.h): with every strategy
 * each step has the bits of one rank alone on such a device. */
#include <string.h>

#include "src/base/log.h"
#include "src/train/trainer.h"
#include "tests/data_fixture.h"

#define SAMPLES 24
#define SEQ_LEN 16
#define STEPS 2

struct world {
    struct comm *comm;
    int rank, ranks;
    char folder[FSIO_PATH_MAX];
};

/* What one rank alone leaves out: how the work is shared. */
static const struct variant {
    const char *name;
    const char *both; /* settings, separated by blanks */
    const char *shared;
} variants[] = {
    { "ddp", "train.precision=fp32", "parallel.strategy=ddp" },
    { "zero1, bf16", "train.precision=bf16", "parallel.strategy=zero1" },
    { "zero2", "train.precision=fp32", "parallel.strategy=zero2" },
    { "zero3, bf16", "train.precision=bf16", "parallel.strategy=zero3" },
    { "zero3, two leaves, Lion",
      "train.precision=fp32 train.microbatch=1 optimizer.name=lion",
      "parallel.strategy=zero3" },
    { "experts, all on every rank",
      "train.precision=fp32 model.preset=moe-tiny", "parallel.strategy=zero1" },
    { "experts in two halves, bf16",
      "train.precision=bf16 model.preset=moe-tiny model.d_model=128 "
      "parallel.strategy=zero3",
      "parallel.expert_degree=2" },
    { "sequences in two parts",
      "train.precision=fp32 parallel.strategy=zero2 "
      "parallel.sequence_chunks=2",
      "parallel.sequence_degree=2" },
};

static const char *const model[] = {
    "hardware.backend=cuda",      "hardware.kernel_set=emulated",
    "model.d_model=32",           "model.n_heads=2",
    "model.n_layers=1",           "model.vocab_size=257",
    "train.max_duration=6ba",     "train.global_batch=4",
    "parallel.slots=2",           "data.seq_len=16",
    "hardware.threads=1",         "optimizer.lr=3e-3",
    "model.dropout_residual=0.1",
};
#define MODEL_COUNT (int)(sizeof model / sizeof model[0])

struct results {
    double losses[STEPS], norms[STEPS];
};

static enum err load_settings(const struct world *world, const char *both,
                              const char *shared, struct train_settings *out)
{
    char data[FSIO_PATH_MAX + 32], words[512];
    char *overrides[40];
    int count = 0;
    snprintf(words, sizeof words, "%s %s", both, shared);
    /* a preset comes before what changes it */
    for (; count < MODEL_COUNT; count++)
        overrides[count] = (char *)model[count];
    snprintf(data, sizeof data, "data.train=%s/data", world->folder);
    overrides[count++] = data;
    overrides[count++] = "run.dir=unused";
    for (char *word = strtok(words, " "); word != NULL;
         word = strtok(NULL, " "))
        overrides[count++] = word;
    return train_settings_load(NULL, overrides, count, out);
}

static enum err train(const struct world *world, struct comm *comm,
                      const char *both, const char *shared, struct results *out)
{
    enum err rc = ERR_OK;
    struct trainer *trainer = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    TRY(load_settings(world, both, shared, settings));
    TRY(trainer_create(comm, settings, 1, &trainer));
    TRY(trainer_start(trainer));
    for (int i = 0; i < STEPS; i++) {
        TRY(trainer_step(trainer));
        out->losses[i] = trainer->loss;
        out->norms[i] = trainer->grad_norm;
    }
out:
    trainer_destroy(trainer);
    free(settings);
    return rc;
}

/* A point counts when it holds on every rank. */
static void everywhere(struct world *world, bool pass, const char *what)
{
    int64_t good = pass;
    if (!pass)
        fprintf(stderr, "# rank %d: %s: %s\n", world->rank, what, err_text());
    enum err rc = comm_all_reduce_i64(world->comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
}

/* Every rank is the one that is alone, once. */
static void test_variant(struct world *world, const struct variant *variant)
{
    struct comm *self = NULL;
    struct results alone = { 0 }, together = { 0 };
    enum err rc = comm_create("self", NULL, NULL, 60.0, &self);
    if (rc == ERR_OK)
        rc = train(world, self, variant->both, "", &alone);
    comm_destroy(self);
    everywhere(world, rc == ERR_OK && alone.losses[0] > 0, variant->name);
    rc = train(world, world->comm, variant->both, variant->shared, &together);
    if (rc == ERR_OK)
        tap_note("%d ranks: loss %.9g, norm %.9g; one: %.9g, %.9g",
                 world->ranks, together.losses[STEPS - 1],
                 together.norms[STEPS - 1], alone.losses[STEPS - 1],
                 alone.norms[STEPS - 1]);
    everywhere(world,
               rc == ERR_OK && memcmp(&alone, &together, sizeof alone) == 0,
               "together they have the bits of one");
}

static int run_tests(struct world *world)
{
    int64_t lengths[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        lengths[i] = SEQ_LEN;
    if (world->rank == 0) {
        snprintf(world->folder, sizeof world->folder, "%s", fixture_folder());
        fixture_dataset(world->folder, "data", lengths, SAMPLES, 1 << 20,
                        false);
    } else {
        tap_silence();
    }
    if (comm_broadcast(world->comm, world->folder, sizeof world->folder, 0) !=
        ERR_OK)
        return 1;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        test_variant(world, &variants[i]);
    comm_barrier(world->comm);
    if (world->rank == 0)
        fsio_remove_tree(world->folder);
    return tap_done();
}

int main(int argc, char **argv)
{
    struct world world = { 0 };
    const struct kernels *table = NULL;
    if (comm_create("auto", &argc, &argv, 60.0, &world.comm) != ERR_OK) {
        fprintf(stderr, "%s\n", err_text());
        return 1;
    }
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    log_init("test", world.rank, LOG_ERROR);
    int status = 0;
    if (kernels_find("cuda", "emulated", &table) == ERR_OK) {
        status = run_tests(&world);
    } else {
        tap_skip("no emulated device: %s", err_text());
        status = tap_done();
    }
    comm_destroy(world.comm);
    return status;
}
