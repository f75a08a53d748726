/* What lies beside the moments, and sums of squares of tensors and rows: the
 * bits of one rank with every strategy on any number of ranks. */

#include "src/parallel/norms.h"
#include "tests/replica_fixture.h"

static const struct strategy strategies[] = {
    { "ddp", { .strategy = REPLICA_DDP } },
    { "zero1", { .strategy = REPLICA_ZERO1 } },
    { "zero1, bf16", { .strategy = REPLICA_ZERO1, .dtype = DTYPE_BF16 } },
    { "ddp, bf16", { .strategy = REPLICA_DDP, .dtype = DTYPE_BF16 } },
    { "zero2", { .strategy = REPLICA_ZERO2 } },
    { "zero3", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero3 of 2",
      { .strategy = REPLICA_ZERO3, .shard_degree = 2, .prefetch = 1 } },
};

static const struct replica_kept kept[REPLICA_KEPT] = { { "mean", true },
                                                        { "scratch", false } };

/* The mean of weights and what they were; then other weights, by their place
 * and their gradient. */
static enum err change(void *arg, const struct replica_partition *partition)
{
    int batch = *(const int *)arg;
    for (int64_t i = 0; i < partition->elements; i++) {
        partition->kept[1][i] = partition->weights[i];
        partition->kept[0][i] =
            0.5f * (partition->kept[0][i] + partition->weights[i]);
        partition->weights[i] += 1e-3f * partition->gradient[i] *
                                 (float)((partition->begin + i) % 3 + batch);
    }
    return ERR_OK;
}

static enum err give_back(void *arg, const struct replica_partition *partition)
{
    (void)arg;
    for (int64_t i = 0; i < partition->elements; i++)
        if ((partition->begin + i) % 2 == 0)
            partition->weights[i] = partition->kept[1][i];
    return ERR_OK;
}

/* All sums of squares there are, one after the other. */
static enum err all_norms(const struct replica *replica, double *sums,
                          int64_t *count)
{
    enum err rc = ERR_OK;
    *count = 0;
    for (int units = 0; units < 2; units++) {
        struct norms *norms = NULL;
        TRY_OUT(norms_create(replica, units, &norms));
        for (int of = NORMS_WEIGHTS; of <= NORMS_KEPT; of++) {
            TRY_OUT(norms_sum(norms, (enum norms_of)of, 0, sums + *count));
            *count += norms_count(norms);
        }
    out:
        norms_destroy(norms);
        if (rc != ERR_OK)
            return rc;
    }
    return rc;
}

/* Of an expert's matrix that is transposed the columns are units; how many
 * experts a layer has. */
static int64_t experts_of(const struct params *params)
{
    for (int p = 0; p < params->count; p++)
        if (params->list[p].role == PARAM_ROUTER)
            return params->list[p].shape[0];
    return 0;
}

static int64_t units_of(const struct params *params, const struct param *param)
{
    if (param->role == PARAM_EXPERTS_DOWN)
        return experts_of(params) * param->shape[1];
    return param->dims == 2 ? param->shape[0] : 1;
}

static int64_t sums_of(const struct params *params)
{
    int64_t count = 0;
    for (int p = 0; p < params->count; p++)
        count += 1 + units_of(params, &params->list[p]);
    return 4 * count;
}

static enum err play_changed(const struct world *world, struct replica *replica,
                             const struct replica_options *options,
                             struct replica *reference, int batch, double *sums)
{
    double results[2];
    int64_t count = 0;
    TRY(play_batch(world, replica, options, reference, batch, NEVER, NEVER,
                   results));
    TRY(replica_visit(replica, change, &batch));
    TRY(replica_publish(replica));
    TRY(comm_barrier(world->comm)); /* nobody reads the weights any more */
    TRY(replica_visit(replica, give_back, NULL));
    TRY(replica_publish(replica));
    TRY(all_norms(replica, sums, &count));
    return count == sums_of(world->params)
               ? ERR_OK
               : err_set(ERR_INTERNAL, "%lld sums", (long long)count);
}

static void test_kept(struct world *world, const struct strategy *strategy)
{
    enum err rc = ERR_OK;
    struct replica_options options = strategy->options;
    struct replica_options one = { .strategy = REPLICA_DDP, .exact = true };
    struct replica *whole = NULL;
    struct replica *replica = NULL;
    struct world alone = alone_in(world);
    size_t count = (size_t)sums_of(world->params);
    double *want = calloc(count, sizeof *want);
    double *got = calloc(count, sizeof *got);
    int64_t elements = 0;
    bool same = true;
    alone.comm = world->self;
    options.exact = true;
    options.slots = one.slots = 5;
    options.leaves = one.leaves = 2;
    memcpy(options.kept, kept, sizeof kept);
    memcpy(one.kept, kept, sizeof kept);
    *world->wrong = 0;
    TRY_OUT(make(&alone, world->self, &one, &whole));
    TRY_OUT(make(world, world->comm, &options, &replica));
    for (int batch = 0; batch < 3; batch++) {
        TRY_OUT(play_changed(world, replica, &options, whole, batch, got));
        TRY_OUT(play_changed(&alone, whole, &one, NULL, batch, want));
        same = same && memcmp(want, got, count * sizeof *want) == 0;
    }
    TRY_OUT(play_eval(world, replica, &options, whole));
    same = same && same_state(world, replica, whole, &elements);
    TRY_OUT(comm_all_reduce_i64(world->comm, &elements, 1, COMM_SUM));
    if (elements != 4 * world->params->numel)
        rc = err_set(ERR_INTERNAL, "not every element is saved once");
out:
    everywhere(world, rc == ERR_OK && same, "the bits of one rank",
               strategy->name);
    replica_destroy(replica);
    replica_destroy(whole);
    free(want);
    free(got);
}

struct check {
    const struct world *world;
    const double *tensors, *rows;
    double worst;
};

static void compare(struct check *check, double want, double got)
{
    double off = want > 0.0 ? fabs(got - want) / want : fabs(got);
    check->worst = off > check->worst ? off : check->worst;
}

/* The sums against plain ones, of a whole replica. */
static enum err check_sums(void *arg, const struct replica_partition *partition)
{
    struct check *check = arg;
    int64_t row = 0;
    for (int p = 0; p < partition->params->count; p++) {
        const struct param *param = &partition->params->list[p];
        bool down = param->role == PARAM_EXPERTS_DOWN;
        int64_t units = units_of(partition->params, param);
        int64_t width = param->numel / units; /* elements of one */
        int64_t stride = down ? param->shape[1] : 1;
        const float *x = partition->weights + param->offset;
        double all = 0.0;
        for (int64_t u = 0; u < units; u++, row++) {
            double sum = 0.0;
            int64_t at =
                down ? u / stride * width * stride + u % stride : u * width;
            for (int64_t i = 0; i < width; i++, at += stride)
                sum += (double)x[at] * (double)x[at];
            compare(check, sum, check->rows[row]);
            all += sum;
        }
        compare(check, all, check->tensors[p]);
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
    struct norms *norms[2] = { NULL };
    size_t count = (size_t)sums_of(world->params);
    double *sums = calloc(2 * count, sizeof *sums);
    struct check check = { .world = world,
                           .tensors = sums,
                           .rows = sums + count };
    alone.comm = world->self;
    TRY_OUT(make(&alone, world->self, &one, &whole));
    for (int units = 0; units < 2; units++) {
        TRY_OUT(norms_create(whole, units, &norms[units]));
        TRY_OUT(norms_sum(norms[units], NORMS_WEIGHTS, 0,
                          sums + (size_t)units * count));
    }
    TRY_OUT(replica_visit(whole, check_sums, &check));
out:
    tap_ok(rc == ERR_OK && check.worst < 1e-13,
           "sums of squares: off by %.1e at most", check.worst);
    norms_destroy(norms[0]);
    norms_destroy(norms[1]);
    replica_destroy(whole);
    free(sums);
}

static enum err fail_last(void *arg, const struct replica_partition *partition)
{
    const struct world *world = arg;
    (void)partition;
    return world->rank == world->ranks - 1
               ? err_set(ERR_INTERNAL, "an op of a device")
               : ERR_OK;
}

/* What fails on one rank ends the visit of all. */
static void test_failure(struct world *world)
{
    enum err rc = ERR_OK;
    struct replica *replica = NULL;
    struct replica_options options = {
        .strategy = REPLICA_ZERO1, .exact = true, .slots = 5, .leaves = 2
    };
    TRY_OUT(make(world, world->comm, &options, &replica));
    rc = replica_visit(replica, fail_last, world);
out:
    everywhere(world, rc == ERR_INTERNAL, "a failed visit", "zero1");
    replica_destroy(replica);
}

int main(int argc, char **argv)
{
    struct world world;
    if (!open_world(&world, &argc, &argv))
        return tap_done();
    static const char *const models[] = { "mpt-tiny", "moe-tiny" };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        make_model(&world, models[m], 3, 300);
        tap_note("%s", models[m]);
        test_values(&world);
        for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
            if (replica_check(&strategies[i].options, world.ranks) == ERR_OK)
                test_kept(&world, &strategies[i]);
        if (m == 0)
            test_failure(&world);
        params_destroy(world.params);
    }
    return close_world(&world);
}
