/* Memory and settings: the automatic microbatch is a function of the file, and
 * what does not fit is told with what does. */
#include "src/train/plan/train_memory.h"

#include <math.h>

#include "tests/tap.h"
#include "tests/run_settings.h"

static enum err load(const char *more, struct train_settings *out)
{
    return run_settings(out,
                        "run.dir=/tmp/x data.train=/tmp/y "
                        "train.max_duration=60ba train.global_batch=64 "
                        "parallel.slots=4 hardware.threads=2 %s",
                        more);
}

static struct train_memory_place place_for(int ranks)
{
    struct train_memory_place place = { .threads = 2, .ranks = ranks };
    tap_ok(kernels_find("cpu", "generic", &place.kernels) == ERR_OK, "kernels");
    return place;
}

static size_t total(const struct train_settings *settings, int ranks)
{
    struct memory_plan plan = { 0 };
    struct train_memory_place place = place_for(ranks);
    tap_ok(train_memory_plan(settings, &place, &plan) == ERR_OK, "a plan");
    return plan.total;
}

static void test_smaller(void)
{
    static const int64_t cases[][2] = { { 1, 0 },  { 2, 1 },  { 3, 1 },
                                        { 4, 2 },  { 9, 3 },  { 6, 3 },
                                        { 16, 8 }, { 35, 7 }, { 97, 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        tap_is_int(train_memory_smaller(cases[i][0]), cases[i][1], "below %lld",
                   (long long)cases[i][0]);
}

/* With a limit at what `micro` samples need on `ranks` ranks: so many. */
static void test_auto(struct train_settings *s)
{
    static const int micros[] = { 16, 8, 4, 2, 1 };
    char text[128];
    tap_ok(load("", s) == ERR_OK && s->train.microbatch == 16 &&
               s->microbatch_automatic,
           "no limit: the whole slot");
    for (size_t i = 0; i < sizeof micros / sizeof *micros; i++) {
        snprintf(text, sizeof text, "train.microbatch=%d", micros[i]);
        if (!tap_ok(load(text, s) == ERR_OK && !s->microbatch_automatic,
                    "given: %d", micros[i]))
            continue;
        snprintf(text, sizeof text, "memory.limit=%zuB", total(s, 1));
        tap_ok(load(text, s) == ERR_OK, "%s: %s", text, err_text());
        tap_is_int(s->train.microbatch, micros[i], "just as much: %d",
                   micros[i]);
        tap_ok(s->microbatch_automatic, "by the program");
    }
    /* what only several ranks can hold is chosen for as few as can */
    load("parallel.strategy=zero1 train.microbatch=1 model.n_layers=16", s);
    size_t one = total(s, 1);
    tap_ok(total(s, 2) < one, "a rank of two needs less");
    snprintf(text, sizeof text,
             "parallel.strategy=zero1 model.n_layers=16 memory.limit=%zuB",
             one - 1);
    tap_ok(load(text, s) == ERR_OK && total(s, 2) <= one - 1,
           "one rank is too few: what fits two");
    snprintf(text, sizeof text, "model.n_layers=16 memory.limit=1MiB");
    tap_ok(load(text, s) == ERR_OK && s->train.microbatch == 1,
           "nothing fits: the smallest, and the run will say so");
}

/* Ranks that a degree does not divide are none of those that are tried. */
static void test_degrees(struct train_settings *s)
{
    static const char base[] = "parallel.strategy=zero2 model.preset=moe-tiny "
                               "parallel.expert_degree=2 train.microbatch=2";
    char text[256];
    tap_ok(load(base, s) == ERR_OK, "experts on 2 ranks: %s", err_text());
    tap_is_int(train_memory_ranks_max(s), 32, "the most ranks are the leaves");
    size_t two = total(s, 2);
    struct replica_options options = train_memory_replica(s);
    tap_is_int(options.leaves, 8, "8 leaves of a slot of 16");
    snprintf(text, sizeof text,
             "parallel.strategy=zero2 model.preset=moe-tiny "
             "parallel.expert_degree=2 memory.limit=%zuB",
             two);
    tap_ok(load(text, s) == ERR_OK && s->train.microbatch == 2,
           "what fits on 2 ranks, with one it is not tried: %s", err_text());
    tap_ok(load("parallel.strategy=zero2 parallel.sequence_chunks=4 "
                "parallel.sequence_degree=2 train.microbatch=4",
                s) == ERR_OK,
           "chunks: %s", err_text());
    options = train_memory_replica(s);
    tap_is_int(options.leaves, 16, "4 leaves of 4 chunks each");
    tap_is_int(train_memory_ranks_max(s), 32, "2 ranks for each leaf");
    struct model_options model;
    tap_ok(train_memory_model(s, 1, &model) == ERR_OK && model.chunks == 4 &&
               model.own_chunks == 2 && model.expert_degree == 1,
           "the model's share");
    tap_ok(load("parallel.slots=4 train.microbatch=4", s) == ERR_OK &&
               train_memory_ranks_max(s) == 4,
           "what may be ddp or zero1 has at most its slots");
}

/* Degrees that are no powers of two: what fits on as few ranks as they allow,
 * and the nearest of their multiples. */
static void test_odd_degrees(struct train_settings *s)
{
    static const char *const cases[] = {
        "parallel.strategy=zero2 model.preset=moe-tiny model.experts=12 "
        "parallel.slots=16 "
        "model.ffn_width=512 parallel.expert_degree=3",
        "parallel.strategy=zero2 data.seq_len=96 parallel.sequence_chunks=3 "
        "parallel.sequence_degree=3",
        "parallel.strategy=zero3 parallel.slots=16 parallel.shard_degree=3",
    };
    char text[512];
    struct train_memory_nearest *nearest = calloc(1, sizeof *nearest);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "%s train.microbatch=2", cases[i]);
        if (!tap_ok(load(text, s) == ERR_OK, "%s: %s", text, err_text()))
            continue;
        size_t three = total(s, 3);
        snprintf(text, sizeof text, "%s memory.limit=%zuB", cases[i], three);
        tap_ok(load(text, s) == ERR_OK, "the limit of 3 ranks: %s", err_text());
        tap_is_int(s->train.microbatch, 2, "is what fits on 3 ranks");
        snprintf(text, sizeof text,
                 "%s train.microbatch=1 memory.checkpoint=block "
                 "memory.compression=bf16 checkpoint.async=false "
                 "model.n_layers=16",
                 cases[i]);
        load(text, s);
        struct train_memory_place place = place_for(3);
        tap_ok(train_memory_nearest(s, &place, total(s, 3) - 1, nearest) ==
                   ERR_OK,
               "look for the nearest");
        tap_ok(nearest->found && nearest->ranks % 3 == 0, "on more ranks: %d",
               nearest->ranks);
    }
    free(nearest);
}

#define ONE "parallel.strategy=zero1 train.microbatch=1 model.n_layers=8"
#define LEAST "parallel.strategy=zero3 train.microbatch=1 model.n_layers=8"
#define LEAN                                                                   \
    " memory.checkpoint=block memory.compression=bf16 checkpoint.async=false"

static const struct {
    const char *overrides;
    size_t missing; /* bytes below the need */
    int ranks;
    const char *changes;
} nearest_cases[] = {
    { "", 1, 1, "train.microbatch=8" },
    { ONE, 1, 1, "memory.checkpoint=\"block: all\"" },
    { ONE, 1, 4, "parallel.strategy=zero2" },
    { ONE " memory.checkpoint=block", 1, 1, "memory.compression=bf16" },
    { ONE " memory.checkpoint=block memory.compression=bf16", 1, 1,
      "checkpoint.async=false" },
    { ONE LEAN, 1, 1, "2 ranks" },
    { ONE LEAN, 1, 4, "parallel.strategy=zero2" },
    { LEAST LEAN, 1, 4, "parallel.strategy=zero2 8 ranks" },
    { LEAST LEAN, 1, 64, NULL },
};

static void test_nearest(struct train_settings *s)
{
    struct train_memory_nearest *nearest = calloc(1, sizeof *nearest);
    for (size_t i = 0; i < sizeof nearest_cases / sizeof *nearest_cases; i++) {
        char changes[256] = "";
        int ranks = nearest_cases[i].ranks;
        struct train_memory_place place = place_for(ranks);
        tap_ok(load(nearest_cases[i].overrides, s) == ERR_OK, "'%s' %s",
               nearest_cases[i].overrides, err_text());
        size_t limit = total(s, ranks) - nearest_cases[i].missing;
        tap_ok(train_memory_nearest(s, &place, limit, nearest) == ERR_OK,
               "look for the nearest");
        tap_ok(nearest->found == (nearest_cases[i].changes != NULL),
               "is there one?");
        if (!nearest->found)
            continue;
        train_memory_changes(s, ranks, &nearest->settings, nearest->ranks,
                             changes, sizeof changes);
        tap_is_str(changes, nearest_cases[i].changes, "the nearest");
        tap_ok(total(&nearest->settings, nearest->ranks) <= limit,
               "it does fit");
    }
    free(nearest);
}

/* What a rank of 64, eight a node, sends in a step of two leaves each, in bytes of the
 * parameters, which are all alike fp32; to other nodes goes what a node sends, over its
 * ranks. */
static void test_sent(struct train_settings *s)
{
    static const struct {
        enum replica_strategy strategy;
        int degree;
        bool once;
        double sent, far;
    } rows[] = {
        { REPLICA_ZERO1, 0, false, 4 * 63 / 64.0 * 2, 4 * 7 / 64.0 * 2 },
        { REPLICA_ZERO2, 0, false, 4 * 63 / 64.0 * 3, 4 * 7 / 64.0 * 3 },
        { REPLICA_ZERO3, 64, true, 4 * 63 / 64.0 * 6, 4 * 7 / 64.0 * 6 },
        /* gradients of each leaf go to all, updated weights to the other groups */
        { REPLICA_ZERO3, 8, false, 4 * (7 / 8.0 * 4 + 63 / 64.0 * 2 + 7 / 64.0),
          4 * (7 / 64.0 * 2 + 7 / 64.0) },
        { REPLICA_ZERO3, 8, true, 4 * (7 / 8.0 * 6 + 2 * 7 / 64.0),
          4 * 2 * 7 / 64.0 },
        /* groups of two nodes gather from each other's ranks */
        { REPLICA_ZERO3, 16, true, 4 * (15 / 16.0 * 6 + 2 * 3 / 64.0),
          4 * (8 / 16.0 * 4 + 1 / 16.0 * 2 + 2 * 3 / 64.0) },
    };
    struct train_memory_place place = place_for(64);
    struct params *params = NULL;
    place.node_ranks = 8;
    tap_ok(load("train.microbatch=1 train.global_batch=128 parallel.slots=64",
                s) == ERR_OK &&
               params_create(&s->model, &params) == ERR_OK,
           "128 samples");
    for (size_t i = 0; i < sizeof rows / sizeof *rows && params != NULL; i++) {
        struct train_memory_way way = { .strategy = rows[i].strategy,
                                        .shard_degree = rows[i].degree,
                                        .once = rows[i].once,
                                        .ranks = 64,
                                        .microbatch = 1 };
        double p = (double)params->elements;
        train_memory_cost(s, &place, params, &way);
        tap_ok(fabs(way.sent / p - rows[i].sent) < 1e-9, "%s of %d: %.4f",
               replica_strategy_names[way.strategy], way.shard_degree,
               way.sent / p);
        double near = way.cost;
        place.node_ranks = 1; /* all is far */
        train_memory_cost(s, &place, params, &way);
        double far = way.cost;
        place.node_ranks = 64;
        train_memory_cost(s, &place, params, &way);
        /* costs are a fixed price, and bytes of which those within a node are a tenth */
        double byte_s = (far - way.cost) / (0.9 * rows[i].sent);
        double was = rows[i].sent - (far - near) / (0.9 * byte_s);
        tap_ok(fabs(was - rows[i].far) < 1e-6, "of it to other nodes %.4f",
               was);
        place.node_ranks = 8;
    }
    params_destroy(params);
}

/* "auto": the cheapest that fits, always the same one. */
static void test_strategy(struct train_settings *s)
{
    static const char *const strategies[] = { "zero1", "zero2", "zero3" };
    char text[128], why[256];
    size_t need[3];
    struct train_memory_place place = place_for(4);
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "train.microbatch=16 parallel.strategy=%s",
                 strategies[i]);
        load(text, s);
        need[i] = total(s, 4);
    }
    tap_ok(need[0] > need[1] && need[1] > need[2], "each takes less");
    for (int i = 0; i < 4; i++) {
        size_t limit = i == 0 ? 0 : need[i - 1];
        load("train.microbatch=16", s);
        tap_is_int(s->parallel.strategy, REPLICA_AUTO, "nothing is given");
        tap_ok(train_memory_strategy(s, &place, limit, why, sizeof why) ==
                   ERR_OK,
               "%s", why);
        tap_is_str(replica_strategy_names[s->parallel.strategy],
                   strategies[i == 0 ? 0 : i - 1], "within %zu bytes", limit);
        tap_ok(total(s, 4) <= limit || limit == 0, "it does fit");
        tap_ok(strstr(why, i < 2 ? "messages cost the least" : "would take") !=
                   NULL,
               "and it says why");
    }
    load("train.microbatch=16", s);
    tap_ok(train_memory_strategy(s, &place, need[2] / 2, why, sizeof why) ==
                   ERR_OK &&
               strstr(why, "none fits") != NULL,
           "%s", why);
    tap_is_int(s->parallel.strategy, REPLICA_ZERO3,
               "none fits: what takes least");
    load("train.microbatch=16 parallel.strategy=zero1", s);
    tap_ok(train_memory_strategy(s, &place, need[2], why, sizeof why) ==
                   ERR_OK &&
               why[0] == '\0',
           "what is given stays");
    tap_is_int(s->parallel.strategy, REPLICA_ZERO1, "what is given stays");
    load("train.microbatch=16 parallel.sequence_chunks=2", s);
    tap_ok(train_memory_strategy(s, &place, 0, why, sizeof why) == ERR_OK,
           "chunks: %s", why);
    tap_is_int(s->parallel.strategy, REPLICA_ZERO2, "chunks need it");
    /* 2 nodes: weights in groups of a node come first */
    place.node_ranks = 2;
    load("train.microbatch=1 model.n_layers=32 parallel.strategy=zero2", s);
    need[1] = total(s, 4);
    load("train.microbatch=1 model.n_layers=32", s);
    tap_ok(train_memory_strategy(s, &place, need[1] - 1, why, sizeof why) ==
                   ERR_OK &&
               s->parallel.shard_degree == 2,
           "%s", why);
    static const struct {
        const char *given;
        int node_ranks, group_ranks, degree;
    } open[] = {
        { "", 2, 0, 2 }, /* of 4 ranks */
        { "", 4, 0, 0 }, /* one node */
        { "", 1, 1, 0 }, /* of nodes of 1 and 3, and of 3 and 1 */
        { "", 3, 1, 0 },
        { "parallel.shard_degree=-1", 2, 0, -1 },
        { "parallel.shard_degree=1", 2, 0, 1 },
    };
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "parallel.strategy=zero3 %s",
                 open[i].given);
        load(line, s);
        place.node_ranks = open[i].node_ranks;
        place.group_ranks = open[i].group_ranks;
        tap_ok(train_memory_strategy(s, &place, SIZE_MAX, why, sizeof why) ==
                       ERR_OK &&
                   s->parallel.strategy == REPLICA_ZERO3,
               "zero3 %s: %s", open[i].given, why);
        tap_is_int(s->parallel.shard_degree, open[i].degree, "its degree");
    }
    place.group_ranks = 0;
}

/* What a node has is for all its ranks; weights that they share count once. */
static void test_room(struct train_settings *s)
{
    struct memory_plan plan;
    struct train_memory_place place = place_for(4);
    place.node_ranks = 4;
    load("parallel.strategy=zero1", s);
    tap_ok(train_memory_plan(s, &place, &plan) == ERR_OK &&
               plan.shared == plan.weights,
           "zero1: weights are shared");
    size_t need = (plan.total * 4 - plan.shared * 3) / 4;
    place.room = need * 106 / 100;
    tap_ok(train_memory_fits(&plan, &place, 0), "as much as there is");
    place.room = need * 104 / 100;
    tap_ok(!train_memory_fits(&plan, &place, 0), "5 %% are left free");
    tap_is_int(train_memory_check(s, &place), ERR_MEMORY, "the run is refused");
    tap_ok(strstr(err_text(), "the node has") != NULL &&
               strstr(err_text(), "what fits: ") != NULL,
           "%s", err_text());
    place.room = 0;
    place.address_space =
        plan.total + ((size_t)place.threads + 1) * kernels_thread_space();
    tap_ok(train_memory_fits(&plan, &place, 0), "address space is there");
    place.address_space = plan.total;
    tap_is_int(train_memory_check(s, &place), ERR_MEMORY, "or it is not");
    tap_ok(strstr(err_text(), "ulimit") != NULL, "%s", err_text());
}

/* Shard groups on nodes hold sums for a step where there is room, and where each has a
 * whole subtree of more than a microstep. */
static void test_once(struct train_settings *s)
{
    static const char base[] = "parallel.strategy=zero3 train.microbatch=1";
    static const struct {
        const char *more;
        int ranks, node_ranks;
        bool once;
    } cases[] = {
        { "parallel.shard_degree=2", 4, 2, true },
        /* chains of 16 leaves on groups of two nodes */
        { "parallel.shard_degree=4", 8, 2, false },
        { "parallel.shard_degree=2", 4, 0, false }, /* one node */
        { "parallel.shard_degree=2", 4, 4, false },
        { "parallel.shard_degree=2", 6, 2, false }, /* thirds of the batch */
        { "parallel.shard_degree=2", 8, 4, false }, /* half of a node */
        { "parallel.shard_degree=-1", 4, 2, false },
        { "", 4, 2, false },
        { "parallel.shard_degree=2 train.microbatch=16", 4, 2, false },
        { "parallel.shard_degree=2 parallel.determinism=fast", 4, 2, false },
    };
    struct memory_plan each, once;
    char text[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct train_memory_place place = place_for(cases[i].ranks);
        place.node_ranks = cases[i].node_ranks;
        snprintf(text, sizeof text, "%s %s", base, cases[i].more);
        tap_ok(load(text, s) == ERR_OK && !s->once &&
                   train_memory_plan(s, &place, &each) == ERR_OK && !each.once,
               "%s on %d by %d", cases[i].more, place.ranks, place.node_ranks);
        tap_ok(train_memory_once(s, &place, 0) == ERR_OK &&
                   s->once == cases[i].once,
               "once a step: %d", cases[i].once);
        if (!cases[i].once)
            continue;
        tap_ok(train_memory_plan(s, &place, &once) == ERR_OK && once.once &&
                   once.partial_sums > each.partial_sums,
               "what waits is planned");
        tap_ok(train_memory_once(s, &place, once.total) == ERR_OK && s->once,
               "within what it takes");
        tap_ok(train_memory_once(s, &place, once.total - 1) == ERR_OK &&
                   !s->once,
               "with less in each microbatch");
    }
}

static void test_check(struct train_settings *s)
{
    char text[128];
    struct train_memory_place place = place_for(1);
    load("train.microbatch=4", s);
    tap_ok(train_memory_check(s, &place) == ERR_OK, "no limit");
    snprintf(text, sizeof text, "train.microbatch=16 memory.limit=%zuB",
             total(s, 1));
    load(text, s);
    tap_is_int(train_memory_check(s, &place), ERR_MEMORY, "beyond the limit");
    tap_ok(strstr(err_text(), "what fits: train.microbatch=4 (") != NULL,
           "with what fits: %s", err_text());
}

int main(void)
{
    struct train_settings *s = calloc(1, sizeof *s);
    test_smaller();
    test_auto(s);
    test_degrees(s);
    test_odd_degrees(s);
    test_nearest(s);
    test_check(s);
    test_once(s);
    test_sent(s);
    test_strategy(s);
    test_room(s);
    free(s);
    return tap_done();
}
