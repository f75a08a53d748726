/* Ranks that train together on devices whose tensors the host can't touch and
 * where everything is done late (cuda_emulator_memory.h): with every strategy
 * each step has the bits of one rank alone on such a device. */

#include "src/model/model.h"
#include "src/train/loop/trainer.h"
#include "tests/trainer_world.h"

#define SAMPLES 24
#define SEQ_LEN 16
#define STEPS 2

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
    { "ddp, leaves as graphs",
      "train.precision=bf16 train.microbatch=1 model.dropout_residual=0 "
      "hardware.graphs=off",
      "parallel.strategy=ddp hardware.graphs=auto" },
    { "zero1, leaves as graphs",
      "train.precision=fp32 train.microbatch=1 model.dropout_residual=0 "
      "hardware.graphs=off",
      "parallel.strategy=zero1 hardware.graphs=auto" },
    { "ddp, fp8", "train.precision=fp8", "parallel.strategy=ddp" },
    { "zero1, fp8", "train.precision=fp8", "parallel.strategy=zero1" },
    { "zero3, fp8", "train.precision=fp8 train.microbatch=1",
      "parallel.strategy=zero3" },
    { "zero3, fp8, experts in two halves, an odd number of leaves",
      "train.precision=fp8 model.preset=moe-tiny model.d_model=128 "
      "train.global_batch=3 parallel.slots=3 parallel.strategy=zero3",
      "parallel.expert_degree=2" },
    { "sequences in two parts, fp8",
      "train.precision=fp8 parallel.strategy=zero2 data.seq_len=32 "
      "parallel.sequence_chunks=2",
      "parallel.sequence_degree=2" },
    { "sequences in two parts",
      "train.precision=fp32 parallel.strategy=zero2 "
      "parallel.sequence_chunks=2",
      "parallel.sequence_degree=2" },
};

struct results {
    double losses[STEPS], norms[STEPS];
    int64_t launches; /* of leaves as graphs */
};

static enum err load_settings(const struct world *world, const char *both,
                              const char *shared, struct train_settings *out)
{
    /* a preset comes before what changes it */
    return run_settings(
        out,
        "hardware.backend=cuda hardware.kernel_set=emulated model.d_model=32 "
        "model.n_heads=2 model.n_layers=1 model.vocab_size=257 "
        "train.max_duration=6ba train.global_batch=4 parallel.slots=2 "
        "data.seq_len=16 hardware.threads=1 optimizer.lr=3e-3 "
        "model.dropout_residual=0.1 parallel.exchange=staged "
        "data.train=%s/data run.dir=unused %s %s",
        world->folder, both, shared);
}

static enum err train(const struct world *world, struct comm *comm,
                      const char *both, const char *shared, struct results *out)
{
    enum err rc = ERR_OK;
    struct run *run = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    TRY_OUT(load_settings(world, both, shared, settings));
    TRY_OUT(trainer_create(comm, settings, 1, &run));
    TRY_OUT(trainer_start(run));
    TRY_OUT(trainer_calibrate(run));
    for (int i = 0; i < STEPS; i++) {
        TRY_OUT(trainer_step(run));
        out->losses[i] = run->now.record.loss;
        out->norms[i] = run->now.record.grad_norm;
    }
    out->launches = model_graph_launches(run->engine.model);
out:
    trainer_destroy(run);
    free(settings);
    return rc;
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
               rc == ERR_OK &&
                   memcmp(alone.losses, together.losses, sizeof alone.losses) ==
                       0 &&
                   memcmp(alone.norms, together.norms, sizeof alone.norms) == 0,
               "together they have the bits of one");
    bool graphs = strstr(variant->shared, "hardware.graphs=auto") != NULL;
    everywhere(world, alone.launches == 0 && graphs == (together.launches > 0),
               graphs ? "as graphs, the one without" : "op by op");
}

static void run_tests(struct world *world)
{
    const struct kernels *table = NULL;
    if (kernels_find("cuda", "emulated", &table) != ERR_OK) {
        tap_skip("no emulated device: %s", err_text());
        return;
    }
    if (world->ranks > 1) {
        struct results refused = { 0 };
        enum err rc = train(world, world->comm, "train.precision=fp32",
                            "parallel.exchange=auto", &refused);
        everywhere(world,
                   rc == ERR_UNSUPPORTED &&
                       strstr(err_text(), "parallel.exchange") != NULL,
                   "ranks without NCCL are refused");
    }
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        test_variant(world, &variants[i]);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, SAMPLES, SEQ_LEN, run_tests);
}
