/* Figures that are taken now and then, of whole runs: norms and activations have
 * the bits of one rank with every strategy on any number of ranks, say what the
 * record says besides, leave out what does not train, come at their steps alone,
 * and change nothing of the run. */

#include "src/base/globs.h"
#include "src/train/plan/train_memory.h"
#include "src/train/loop/trainer.h"
#include "tests/trainer_world.h"

#define SAMPLES 16
#define SEQ_LEN 16
#define STEPS 4
#define FIGURES_MAX 4096

/* What a run has told, of all steps. */
struct told {
    struct {
        char name[96];
        int64_t step;
        double value;
    } list[FIGURES_MAX];
    int count;
    double losses[STEPS + 1], norms[STEPS + 1];
};

static struct told *hearing; /* by the run at hand, on its rank 0 */

static enum err hear(void *self, enum event event,
                     const struct step_record *step, struct asks *asks)
{
    (void)self;
    (void)event;
    (void)asks;
    hearing->losses[step->step] = step->loss;
    hearing->norms[step->step] = step->grad_norm;
    if (step->scalars == NULL)
        return ERR_OK;
    const struct tracking_record *record = tracking_list_record(step->scalars);
    for (int i = 0; i < record->count && hearing->count < FIGURES_MAX; i++) {
        int at = hearing->count++;
        snprintf(hearing->list[at].name, sizeof hearing->list[at].name, "%s",
                 record->scalars[i].name);
        hearing->list[at].step = step->step;
        hearing->list[at].value = record->scalars[i].value;
    }
    return ERR_OK;
}

static const struct listener_ops hear_ops = { .handle = hear };
static const struct listener hears = { "hears", LISTEN_EACH_RANK,
                                       EVENT_BIT(EVENT_BATCH_END), &hear_ops,
                                       NULL };

/* NAN: not told. */
static double told_value(const struct told *told, int64_t step,
                         const char *name)
{
    for (int i = 0; i < told->count; i++)
        if (told->list[i].step == step && strcmp(told->list[i].name, name) == 0)
            return told->list[i].value;
    return NAN;
}

static int count_of(const struct told *told, int64_t step, const char *glob)
{
    int count = 0;
    for (int i = 0; i < told->count; i++)
        count +=
            told->list[i].step == step && globs_match(glob, told->list[i].name);
    return count;
}

/* Every figure of `want` that the glob matches is in `got`, to the bit. */
static bool same_figures(const struct told *want, const struct told *got,
                         const char *glob)
{
    int matched = 0;
    for (int i = 0; i < want->count; i++) {
        if (!globs_match(glob, want->list[i].name))
            continue;
        double value = told_value(got, want->list[i].step, want->list[i].name);
        matched++;
        if (memcmp(&value, &want->list[i].value, sizeof value) != 0) {
            fprintf(stderr, "# step %lld: %s is %.17g, not %.17g\n",
                    (long long)want->list[i].step, want->list[i].name, value,
                    want->list[i].value);
            return false;
        }
    }
    return matched > 0;
}

/* A run on the ranks of comm, in a folder of its own. */
static enum err run(struct world *world, struct comm *comm, const char *name,
                    const char *more, struct told *told)
{
    enum err rc = ERR_OK;
    struct run *run = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    *told = (struct told){ .count = 0 };
    hearing = told;
    TRY_OUT(run_settings(
        settings,
        "run.dir=%s/%s-%d data.train=%s/data hardware.backend=cpu "
        "hardware.threads=1 train.max_duration=4ba train.global_batch=8 "
        "train.microbatch=1 parallel.slots=4 data.seq_len=16 "
        "checkpoint.interval=0ba model.d_model=32 model.n_heads=2 "
        "model.n_layers=2 model.vocab_size=300 monitor.system=0ba "
        "monitor.memory=0ba %s",
        world->folder, name, comm == world->comm ? 0 : 1 + world->rank,
        world->folder, more));
    TRY_OUT(fsio_mkdirs(settings->run.dir));
    TRY_OUT(trainer_create(comm, settings, 1, &run));
    TRY_OUT(comm_agree(comm, events_listen_table(&run->events, NULL, run)));
    TRY_OUT(events_listen(&run->events, &hears, run));
    TRY_OUT(trainer_start(run));
    TRY_OUT(trainer_fit(run));
out:
    trainer_destroy(run);
    free(settings);
    return rc;
}

static struct told want, got; /* too large for a stack */

static const struct {
    const char *name;
    const char *settings;
} strategies[] = {
    { "ddp", "parallel.strategy=ddp" },
    { "zero1", "parallel.strategy=zero1" },
    { "zero2", "parallel.strategy=zero2" },
    { "zero3", "parallel.strategy=zero3" },
    { "zero2 of sequences",
      "parallel.strategy=zero2 parallel.sequence_chunks=2" },
    { "zero1, layers in groups",
      "parallel.strategy=zero1 "
      "optimizer.groups=({match=\"*norm*\";optimizer=\"lion\";})" },
    { "zero1, adapters", "parallel.strategy=zero1 lora.rank=2" },
    { "zero3, frozen", "parallel.strategy=zero3 model.freeze=*blocks.0.*" },
    { "zero2, recomputed", "parallel.strategy=zero2 memory.checkpoint=block" },
};

#define NORMS "monitor.norms=2ba "
#define ACTIVATIONS "monitor.activations=2ba "

/* The run of one rank, with the same settings, as far as one rank can. */
static void test_bits(struct world *world, struct comm *self, size_t s)
{
    enum err rc = ERR_OK;
    char name[64], label[96], all[256];
    snprintf(all, sizeof all, NORMS ACTIVATIONS "%s", strategies[s].settings);
    snprintf(name, sizeof name, "all-%zu", s);
    TRY_OUT(run(world, world->comm, name, all, &got));
    snprintf(name, sizeof name, "alone-%zu", s);
    TRY_OUT(run(world, self, name, all, &want));
out:
    snprintf(label, sizeof label, "%s: norms of one rank", strategies[s].name);
    everywhere(world,
               rc == ERR_OK &&
                   (world->rank > 0 || same_figures(&want, &got, "norm/*")),
               label);
    snprintf(label, sizeof label, "%s: activations of one rank",
             strategies[s].name);
    everywhere(world,
               rc == ERR_OK && (world->rank > 0 ||
                                same_figures(&want, &got, "activation/*")),
               label);
    if (rc == ERR_OK)
        rc = run(world, world->comm, name, strategies[s].settings, &want);
    snprintf(label, sizeof label, "%s: nothing else changes",
             strategies[s].name);
    everywhere(world,
               rc == ERR_OK &&
                   memcmp(want.losses, got.losses, sizeof want.losses) == 0 &&
                   memcmp(want.norms, got.norms, sizeof want.norms) == 0 &&
                   count_of(&want, 2, "norm/* activation/*") == 0,
               label);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Against the record and each other. */
static void test_values(struct world *world)
{
    bool first = world->rank == 0;
    enum err rc = run(world, world->comm, "values",
                      NORMS ACTIVATIONS "parallel.strategy=zero1", &got);
    double mean, deviation;
    bool pass = rc == ERR_OK;
    for (int64_t step = 2; step <= 4 && first; step += 2) {
        pass = pass && near(told_value(&got, step, "norm/grad/global"),
                            got.norms[step]);
        mean = told_value(&got, step, "activation/mean/transformer.blocks.1");
        deviation =
            told_value(&got, step, "activation/std/transformer.blocks.1");
        double most =
            told_value(&got, step, "activation/max/transformer.blocks.1");
        pass =
            pass && deviation > 0.0 && most > fabs(mean) && most >= deviation &&
            told_value(&got, step, "activation/zeros/transformer.blocks.1") ==
                0.0;
    }
    everywhere(world, pass, "the gradient's norm is the record's");
    everywhere(world,
               !first || (count_of(&got, 1, "norm/*") == 0 &&
                          count_of(&got, 2, "norm/*") ==
                              5 * (1 + count_of(&got, 2, "norm/grad/trans*")) &&
                          count_of(&got, 3, "activation/*") == 0 &&
                          count_of(&got, 4, "activation/*") == 8),
               "every other step, of each tensor five");
    rc = run(world, world->comm, "never",
             NORMS ACTIVATIONS "log.interval=3 parallel.strategy=zero1", &got);
    everywhere(world,
               rc == ERR_OK &&
                   (!first || (count_of(&got, 2, "norm/*") == 0 &&
                               count_of(&got, 3, "norm/grad/*") > 1 &&
                               count_of(&got, 4, "norm/*") == 0)),
               "of unlogged steps the next logged one");
}

static void test_left_out(struct world *world)
{
    enum err rc =
        run(world, world->comm, "adapters", NORMS "lora.rank=2", &got);
    bool first = world->rank == 0;
    everywhere(world,
               rc == ERR_OK &&
                   (!first || (count_of(&got, 2, "norm/grad/*lora*") > 0 &&
                               count_of(&got, 2, "norm/grad/*.wte.*") == 0)),
               "what does not train is left out");
}

static void test_experts(struct world *world)
{
    enum err rc =
        run(world, world->comm, "experts",
            "monitor.experts=1ba model.experts=4 model.experts_top_k=2", &got);
    double least = told_value(&got, 2, "experts/min/transformer.blocks.1");
    double middle = told_value(&got, 2, "experts/median/transformer.blocks.1");
    double most = told_value(&got, 2, "experts/max/transformer.blocks.1");
    double deviation = told_value(&got, 2, "experts/std/transformer.blocks.1");
    everywhere(world,
               rc == ERR_OK &&
                   (world->rank > 0 ||
                    (least >= 0.0 && least <= middle && middle <= most &&
                     least < 1.0 && most > 1.0 && most <= 4.0 &&
                     deviation > 0.0 && count_of(&got, 2, "experts/*/*") == 8)),
               "experts: shares of each block");
}

static void test_plan(struct world *world)
{
    struct train_settings *settings = calloc(1, sizeof *settings);
    struct params *params = NULL;
    enum err rc = run_settings(
        settings, "train.max_duration=4ba train.global_batch=8 data.train=x "
                  "run.dir=y monitor.norms=1ba");
    if (rc == ERR_OK)
        rc = train_settings_params(settings, &params);
    size_t bytes = rc == ERR_OK ? train_memory_norms(settings, params) : 0;
    settings->monitor.norms.value = 0.0;
    everywhere(world,
               bytes >= REPLICA_WATCHED * sizeof(float) &&
                   train_memory_norms(settings, params) == 0,
               "the plan counts what norms take, where they are on");
    params_destroy(params);
    free(settings);
}

static void tests(struct world *world)
{
    struct comm *self;
    if (comm_create("self", NULL, NULL, 60.0, &self) != ERR_OK)
        abort();
    test_values(world);
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
        test_bits(world, self, s);
    test_left_out(world);
    test_experts(world);
    test_plan(world);
    comm_destroy(self);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, SAMPLES, SEQ_LEN, tests);
}
