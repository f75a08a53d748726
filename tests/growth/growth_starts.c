/* Rows of a start: which nodes train, what is planned, what the data set's index
 * and a model's tensors are. Nodes have 8 ranks; shards and tensors are 8 for
 * each rank, so that 16,384 ranks are 2,048 nodes and 131,072 of both. */
#include "checkpoint/ckpt_load_private.h"
#include "src/comm/comm_window.h"
#include "src/control/nodes.h"
#include "src/data/mds/mds_index.h"
#include "src/job/reach.h"
#include "src/parallel/norms_impl.h"
#include "src/train/start/start.h"
#include "tests/growth/growth.h"

#define EACH 8

/* All look at themselves, then at each other; one of a hundred is bad. */
static bool nodes_decided(int ranks, struct growth_cost *cost)
{
    int count = ranks / EACH, calls = 0;
    struct nodes nodes = { .count = count, .wanted = count - count / 50 - 1 };
    struct nodes_node *list = calloc((size_t)count, sizeof *list);
    char(*names)[16] = calloc((size_t)count, sizeof *names);
    int *order = calloc((size_t)count, sizeof *order);
    enum nodes_what what;
    nodes.list = list;
    nodes.wanted_min = nodes.wanted;
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "node%05d", i);
        list[i] = (struct nodes_node){ .name = names[i],
                                       .allocated = true,
                                       .usable = true };
    }
    double begin_s = growth_clock();
    while ((what = nodes_next(&nodes)) != NODES_GO && calls++ < 9)
        for (int i = 0; i < count; i++) {
            bool bad = i % 100 == 7;
            list[i].verdict = bad ? NODES_SICK : NODES_OK;
            list[i].code = bad ? "GPU_LOST" : "OK";
            list[i].reason = "";
        }
    int good = nodes_order(&nodes, order);
    cost->seconds = growth_clock() - begin_s;
    bool right = what == NODES_GO && good >= nodes.wanted &&
                 nodes_count(&nodes, NODES_BAD) == (count + 92) / 100;
    free(order);
    free(names);
    free(list);
    return right;
}

/* All nodes are asked whether they are there; a rank each, since a launch asks nodes. */
static bool nodes_asked(int ranks, struct growth_cost *cost)
{
    struct reach_host *hosts = calloc((size_t)ranks, sizeof *hosts);
    char(*addresses)[20] = calloc((size_t)ranks, sizeof *addresses);
    bool here = true;
    for (int i = 0; i < ranks; i++) {
        snprintf(addresses[i], sizeof addresses[i], "127.1.%d.%d", i / 250,
                 1 + i % 250);
        hosts[i] = (struct reach_host){ .name = addresses[i],
                                        .address = addresses[i] };
    }
    double begin_s = growth_clock();
    reach_ask(hosts, ranks, REACH_PORT);
    cost->seconds = growth_clock() - begin_s;
    for (int i = 0; i < ranks; i++)
        here = here && hosts[i].answer == REACH_HERE;
    free(addresses);
    free(hosts);
    return here;
}

/* What the rank with most has, beside the mean; until blocks were dealt in turn it
 * had the longest partition of each. */
static void tell_cut(const struct params *params, const struct owner *owner)
{
    int64_t longest = 0;
    double mean = (double)params->elements / owner->ranks;
    for (int b = 0; b < owner->block_count; b++)
        longest += owner_longest(owner, b);
    tap_note("cut of 70B: largest / mean %.4f, not in turn %.4f",
             (double)owner->own / mean, (double)longest / mean);
}

/* Sums in pieces by blocks, as on up to BLOCK_NODES_MAX nodes; on more they have one. */
static bool exchanges_planned(int ranks, struct growth_cost *cost)
{
    const struct params *params = growth_params("mpt-70b");
    struct scatter_options options = { .slots = ranks,
                                       .leaves = 1,
                                       .own_leaves = 1 };
    struct reduce_bytes scattered = { 0 }, reduced = { 0 };
    struct owner *owner = NULL, *pieces = NULL;
    double begin_s = growth_clock();
    bool good =
        owner_create(params, OWNER_CUT_BLOCKS, OWNER_LARGEST, ranks, ranks, 1,
                     &owner) == ERR_OK &&
        owner_create(params, OWNER_CUT_JOINED, OWNER_LARGEST, ranks, 1, 1,
                     &pieces) == ERR_OK &&
        scatter_plan(params, owner, &options, &scattered, NULL) == ERR_OK;
    if (good)
        reduce_plan(params->elements, pieces, REDUCE_ANY_RANK, ranks, ranks,
                    &reduced);
    cost->seconds = growth_clock() - begin_s;
    if (good)
        tell_cut(params, owner);
    owner_destroy(owner);
    owner_destroy(pieces);
    return good && scattered.total > 0 && reduced.total > 0;
}

/* The route of a rank, two microsteps of it, and what its exchange takes; of shard
 * groups that exchange once a step. */
static bool plan_levels(int ranks, int group, struct growth_cost *cost)
{
    bool ranges = false;
    const struct params *params = growth_params("mpt-70b");
    int *counts = calloc((size_t)(ranks / EACH), sizeof *counts);
    struct scatter_options options = { .slots = 2 * ranks,
                                       .leaves = 1,
                                       .own_leaves = 1 };
    struct reduce_bytes bytes = { 0 };
    struct topology *topology = NULL;
    struct owner *owner = NULL;
    for (int n = 0; n < ranks / EACH; n++)
        counts[n] = EACH;
    bool good = topology_describe(counts, ranks / EACH, &topology) == ERR_OK &&
                owner_create_rows(params, OWNER_CUT_BLOCKS, ranks / 2, ranks,
                                  group, 1, EACH, &owner) == ERR_OK;
    options.topology = topology;
    options.group = group < ranks ? group : 0;
    double begin_s = growth_clock();
    good = good &&
           scatter_plan(params, owner, &options, &bytes, &ranges) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    owner_destroy(owner);
    topology_destroy(topology);
    free(counts);
    return good && bytes.exchange > 0 && ranges == (group < ranks);
}

static bool levels_planned(int ranks, struct growth_cost *cost)
{
    return plan_levels(ranks, ranks, cost);
}

static bool once_planned(int ranks, struct growth_cost *cost)
{
    return plan_levels(ranks, 4 * EACH, cost);
}

/* Sums of squares of tensors: where each rank's fragments are, and all added. */
static bool tensor_norms(int ranks, bool step, struct growth_cost *cost)
{
    struct replica replica = { .params = growth_params("mpt-70b") };
    struct norms *norms = NULL;
    struct comm *comm = stub_comm_create(ranks / 2, ranks, EACH);
    double *sums = calloc((size_t)replica.params->count, sizeof *sums);
    bool good = kernels_find("cpu", "generic", &replica.kernels) == ERR_OK &&
                owner_create(replica.params, OWNER_CUT_BLOCKS, ranks / 2, ranks,
                             ranks, 1, &replica.owner) == ERR_OK;
    replica.comm = comm;
    double begin_s = growth_clock();
    good = good && norms_create(&replica, false, &norms) == ERR_OK;
    if (step) {
        begin_s = growth_clock();
        good = good && norms_gather(norms, sums) == ERR_OK;
    }
    cost->seconds = growth_clock() - begin_s;
    cost->memory = (int64_t)norms_bytes(replica.params, false);
    cost->counts = stub_comm_counts(comm);
    norms_destroy(norms);
    owner_destroy(replica.owner);
    comm_destroy(comm);
    free(sums);
    return good;
}

static bool norms_made(int ranks, struct growth_cost *cost)
{
    return tensor_norms(ranks, false, cost);
}

static bool norms_added(int ranks, struct growth_cost *cost)
{
    return tensor_norms(ranks, true, cost);
}

/* Nodes of one rank, which has nobody to share with. */
static bool window_made(int ranks, struct growth_cost *cost)
{
    struct comm *comm = stub_comm_create(ranks / 2, ranks, 1);
    struct comm_window *window = NULL;
    double begin_s = growth_clock();
    bool good =
        comm_window_create(comm, COMM_WINDOW_EACH, 4096, &window) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->counts = stub_comm_counts(comm);
    good = good && comm_window_node(window, ranks - 1) == ranks - 1;
    comm_window_destroy(window);
    comm_destroy(comm);
    return good;
}

static bool index_read(int ranks, struct growth_cost *cost)
{
    const char *folder = tap_folder();
    char path[1200];
    snprintf(path, sizeof path, "%s/index.json", folder);
    FILE *out = fopen(path, "w");
    struct mds_index *index = NULL;
    int shards = EACH * ranks;
    if (out == NULL)
        return false;
    fprintf(out, "{\"version\": 2, \"shards\": [");
    for (int s = 0; s < shards; s++)
        fprintf(out,
                "%s{\"column_encodings\": [\"bytes\"], \"column_names\": "
                "[\"tokens\"], \"column_sizes\": [null], \"compression\": "
                "null, \"format\": \"mds\", \"hashes\": [], \"raw_data\": "
                "{\"basename\": \"shard.%05d.mds\", \"bytes\": 67092637, "
                "\"hashes\": {}}, \"samples\": 4093, \"size_limit\": 67108864, "
                "\"version\": 2, \"zip_data\": null}",
                s > 0 ? ", " : "", s);
    fprintf(out, "]}");
    if (fclose(out) != 0)
        return false;
    int64_t memory = growth_memory();
    double begin_s = growth_clock();
    bool good = mds_index_read(folder, &index) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->memory = growth_memory() - memory;
    if (!good)
        tap_note("%s", err_text());
    good = good && index->shards == shards;
    mds_index_destroy(index);
    return good;
}

/* A model's tensors found among a checkpoint's by name. */
static bool tensors_matched(int ranks, struct growth_cost *cost)
{
    int count = EACH * ranks, *item_of_tensor = NULL;
    struct ckpt_tensor *tensors = calloc((size_t)count, sizeof *tensors);
    struct ckpt_item *items = calloc((size_t)count, sizeof *items);
    struct ckpt_manifest manifest = { .tensors = tensors,
                                      .tensor_count = count };
    for (int t = 0; t < count; t++) {
        struct ckpt_item *item = &items[count - 1 - t];
        snprintf(tensors[t].name, sizeof tensors[t].name, "blocks.%d.w", t);
        snprintf(item->name, sizeof item->name, "blocks.%d.w", t);
        tensors[t].dims = item->dims = 1;
        tensors[t].shape[0] = item->shape[0] = tensors[t].elements = 3;
    }
    double begin_s = growth_clock();
    bool good = ckpt_match(&manifest, "it", NULL, items, count, true,
                           &item_of_tensor) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    for (int t = 0; t < count && good; t++)
        good = item_of_tensor[t] == count - 1 - t;
    free(item_of_tensor);
    free(items);
    free(tensors);
    return good;
}

/* Settings, data and arithmetic of each rank against those of rank 0. */
static bool ranks_compared(int ranks, struct growth_cost *cost)
{
    static char option[] = "train.max_duration=1ba";
    char *const options[] = { option };
    struct run *run = calloc(1, sizeof *run);
    struct comm *comm = stub_comm_create(ranks / 2, ranks, EACH);
    bool good =
        train_settings_read(NULL, options, 1, true, &run->settings) == ERR_OK;
    run->comm = comm;
    double begin_s = growth_clock();
    good = good && start_same(run) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->counts = stub_comm_counts(comm);
    comm_destroy(comm);
    free(run);
    return good;
}

const struct growth_row growth_starts[] = {
    { "launch's nodes, 8 ranks each", GROWTH_START, 0, NULL, 0, nodes_decided },
    { "nodes asked over the network", GROWTH_START, 0, NULL, 0, nodes_asked },
    { "reduce and scatter plans", GROWTH_START, 0, NULL, 0, exchanges_planned },
    { "exchange in levels, 8 a node", GROWTH_START, 0, NULL, 0,
      levels_planned },
    { "shards of 4 nodes, once a step", GROWTH_START, 0, NULL, 0,
      once_planned },
    { "norms of tensors made, 70b", GROWTH_START, 0, NULL, 0, norms_made },
    { "norms of tensors, 70b", GROWTH_STEP, 0, NULL, 0, norms_added },
    { "window, nodes of one rank", GROWTH_START, 0, NULL, 0, window_made },
    { "ranks' settings compared", GROWTH_START, 0, NULL, 0, ranks_compared },
    { "data index, 8 shards a rank", GROWTH_START, 0, NULL, 0, index_read },
    { "tensors by name, 8 a rank", GROWTH_START, 0, NULL, 0, tensors_matched },
    { 0 }
};
