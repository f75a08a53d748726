/* What an update changes, by tensors: the plain difference of weights, the bits
 * of one rank with every strategy on any number of ranks, and an update whose
 * bits are those of one that nobody looks at. */

#include "src/parallel/norms.h"
#include "tests/replica_fixture.h"

#define TENSORS_MAX 128

/* the second matches few tensors, which need whole ones under ddp and zero1 */
static struct optimizer_group groups[] = { { "*norm*", NULL },
                                           { "*up_proj*", NULL } };

static const struct strategy strategies[] = {
    { "ddp", { .strategy = REPLICA_DDP } },
    { "zero1", { .strategy = REPLICA_ZERO1 } },
    { "zero1, bf16", { .strategy = REPLICA_ZERO1, .dtype = DTYPE_BF16 } },
    { "zero2", { .strategy = REPLICA_ZERO2 } },
    { "zero3", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero3 of 2",
      { .strategy = REPLICA_ZERO3, .shard_degree = 2, .prefetch = 1 } },
    { "ddp, whole tensors",
      { .strategy = REPLICA_DDP, .groups = groups, .group_count = 2 } },
    { "zero1, whole tensors",
      { .strategy = REPLICA_ZERO1, .groups = groups, .group_count = 2 } },
};

/* One batch, of whose update the sums are taken; `held`: one tensor stays. */
static enum err play_watched(const struct world *world, struct replica *replica,
                             const struct replica_options *options,
                             struct replica *reference, int batch, bool held,
                             struct norms *norms, double *sums)
{
    static bool hold[TENSORS_MAX];
    double results[2];
    hold[3] = true;
    replica_hold(replica, held ? hold : NULL);
    norms_watch_update(norms, replica);
    TRY(play_batch(world, replica, options, reference, batch, NEVER, NEVER,
                   results));
    return norms_watched_update(norms, replica, sums);
}

static void test_strategy(struct world *world, const struct strategy *strategy)
{
    enum err rc = ERR_OK;
    struct replica_options options = strategy->options;
    struct replica_options one = options;
    struct world alone = alone_in(world);
    struct replica *whole = NULL, *plain = NULL, *replica = NULL;
    struct norms *norms[2] = { NULL };
    double want[TENSORS_MAX], got[TENSORS_MAX], results[2];
    int64_t elements = 0;
    bool same = true, some = true;
    alone.comm = world->self;
    one.strategy = REPLICA_DDP;
    one.dtype = DTYPE_F32;
    one.shard_degree = 0;
    options.exact = one.exact = true;
    options.slots = one.slots = 5;
    options.leaves = one.leaves = 2;
    *world->wrong = 0;
    TRY_OUT(make(&alone, world->self, &one, &whole));
    TRY_OUT(make(&alone, world->self, &one, &plain));
    TRY_OUT(make(world, world->comm, &options, &replica));
    TRY_OUT(norms_watch_create(whole, &norms[0]));
    TRY_OUT(norms_watch_create(replica, &norms[1]));
    for (int batch = 0; batch < 3; batch++) {
        bool held = batch == 2;
        TRY_OUT(play_watched(world, replica, &options, whole, batch, held,
                             norms[1], got));
        TRY_OUT(play_watched(&alone, whole, &one, NULL, batch, held, norms[0],
                             want));
        same = same && memcmp(want, got,
                              (size_t)world->params->count * sizeof *want) == 0;
        for (int p = 0; p < world->params->count; p++)
            some = some && (got[p] > 0.0) == (p != 3 || !held);
        static bool hold[TENSORS_MAX] = { [3] = true };
        replica_hold(plain, held ? hold : NULL);
        TRY_OUT(play_batch(&alone, plain, &one, NULL, batch, NEVER, NEVER,
                           results));
    }
    /* of the whole ones, too: `whole` has been looked at */
    same = same && same_state(world, replica, plain, &elements);
out:
    everywhere(world, rc == ERR_OK && same && some, "the bits of one rank",
               strategy->name);
    norms_destroy(norms[0]);
    norms_destroy(norms[1]);
    replica_destroy(replica);
    replica_destroy(whole);
    replica_destroy(plain);
}

struct difference {
    float *before;
    const double *sums; /* NULL: only keep the weights */
    double worst;
};

static enum err compare_plain(void *arg,
                              const struct replica_partition *partition)
{
    struct difference *d = arg;
    if (d->sums == NULL) {
        memcpy(d->before, partition->weights,
               (size_t)partition->elements * sizeof(float));
        return ERR_OK;
    }
    for (int p = 0; p < partition->params->count; p++) {
        const struct param *param = &partition->params->list[p];
        double sum = 0.0;
        for (int64_t i = param->offset; i < param->offset + param->numel; i++) {
            double change =
                (double)partition->weights[i] - (double)d->before[i];
            sum += change * change;
        }
        double off = fabs(sum - d->sums[p]) / sum;
        d->worst = off <= d->worst ? d->worst : off;
    }
    return ERR_OK;
}

static void test_values(struct world *world)
{
    enum err rc = ERR_OK;
    struct replica_options one = {
        .strategy = REPLICA_DDP, .exact = true, .slots = 1, .leaves = 1
    };
    struct world alone = alone_in(world);
    struct replica *whole = NULL;
    struct norms *norms = NULL;
    double sums[TENSORS_MAX];
    struct difference d = { .before = malloc((size_t)world->params->elements *
                                             sizeof(float)) };
    alone.comm = world->self;
    *world->wrong = 0;
    TRY_OUT(make(&alone, world->self, &one, &whole));
    TRY_OUT(norms_watch_create(whole, &norms));
    TRY_OUT(replica_visit(whole, compare_plain, &d));
    TRY_OUT(play_watched(&alone, whole, &one, NULL, 0, false, norms, sums));
    d.sums = sums;
    TRY_OUT(replica_visit(whole, compare_plain, &d));
    if (strcmp(norms_moment_name(norms, 0, 0), "exp_avg") != 0 ||
        strcmp(norms_moment_name(norms, 0, 1), "exp_avg_sq") != 0 ||
        norms_moment_name(norms, 0, 2) != NULL)
        rc = err_set(ERR_INTERNAL, "AdamW has other moments");
out:
    tap_ok(rc == ERR_OK && d.worst < 1e-12,
           "squares of what an update changes: off by %.1e at most", d.worst);
    norms_destroy(norms);
    replica_destroy(whole);
    free(d.before);
}

static const struct optimizer_ops *optimizer_named(const char *name)
{
    int i = 0;
    while (strcmp(optimizer_at(i)->name, name) != 0)
        i++;
    return optimizer_at(i);
}

int main(int argc, char **argv)
{
    struct world world;
    if (!open_world(&world, &argc, &argv))
        return tap_done();
    groups[0].optimizer = optimizer_named("lion");
    groups[1].optimizer = optimizer_named("adafactor");
    make_model(&world, "mpt-tiny", 3, 300);
    test_values(&world);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (replica_check(&strategies[i].options, world.ranks) == ERR_OK)
            test_strategy(&world, &strategies[i]);
    params_destroy(world.params);
    return close_world(&world);
}
