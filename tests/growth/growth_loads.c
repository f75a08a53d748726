/* Rows of a load: who reads and who takes what, out of a manifest of as many
 * ranks. */
#include "checkpoint/ckpt_load_private.h"
#include "checkpoint/files/ckpt_shard.h"
#include "checkpoint/files/ckpt_view.h"
#include "src/parallel/owner.h"
#include "tests/growth/growth.h"

#define KINDS 3 /* weights and two moments */
#define NODE 8  /* ranks */

struct load {
    const struct params *params;
    struct owner *from, *to; /* who saved, who loads */
    struct ckpt_manifest manifest;
    struct ckpt_item *items;
    int *item_of_tensor;
    struct ckpt_wants *wants; /* [ranks that load] */
    int each;                 /* ranks that write one file */
    bool local;               /* shards lie on the nodes of those who wrote */
    double others_s;
};

static void need(bool good)
{
    if (good)
        return;
    printf("Bail out! %s\n", err_text());
    exit(1);
}

/* What the rank has of tensor p, as a checkpoint's item has it. */
static struct ckpt_part part_of(const struct owner *owner,
                                const struct param *param, int rank)
{
    int block = owner->block_count > 1 ? param->block : 0;
    int place = owner_place(owner, block, rank);
    int64_t begin = owner_begin(owner, block, place) - param->offset;
    int64_t end = owner_begin(owner, block, place + 1) - param->offset;
    begin = begin < 0 ? 0 : begin > param->numel ? param->numel : begin;
    end = end < 0 ? 0 : end > param->numel ? param->numel : end;
    return (struct ckpt_part){ .begin = begin, .end = end };
}

static void make_tensors(struct load *load)
{
    struct ckpt_manifest *m = &load->manifest;
    m->tensor_count = KINDS * load->params->count;
    m->tensors = calloc((size_t)m->tensor_count, sizeof *m->tensors);
    load->items = calloc((size_t)m->tensor_count, sizeof *load->items);
    load->item_of_tensor = calloc((size_t)m->tensor_count, sizeof(int));
    need(m->tensors != NULL && load->items != NULL &&
         load->item_of_tensor != NULL);
    for (int t = 0; t < m->tensor_count; t++) {
        const struct param *param =
            &load->params->list[t % load->params->count];
        struct ckpt_item *item = &load->items[t];
        *item = (struct ckpt_item){ .dtype = DTYPE_F32, .dims = param->dims };
        memcpy(item->shape, param->shape, sizeof param->shape);
        snprintf(item->name, sizeof item->name, "%d/%s",
                 t / load->params->count, param->name);
        struct ckpt_tensor *tensor = &m->tensors[t];
        *tensor = (struct ckpt_tensor){ .dtype = item->dtype,
                                        .dims = item->dims,
                                        .elements = param->numel };
        memcpy(tensor->shape, item->shape, sizeof tensor->shape);
        memcpy(tensor->name, item->name, sizeof tensor->name);
        load->item_of_tensor[t] = t;
    }
}

static void set_parts(struct load *load, const struct owner *owner, int rank)
{
    for (int t = 0; t < load->manifest.tensor_count; t++)
        load->items[t].part =
            part_of(owner, &load->params->list[t % load->params->count], rank);
}

static int by_begin(const void *a, const void *b)
{
    const struct ckpt_part *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* What a file's ranks have of tensor t, in parts[each]: neighbours are one. */
static int merged_parts(const struct load *load, int shard, int t,
                        struct ckpt_part *parts)
{
    const struct param *param = &load->params->list[t % load->params->count];
    int count = 0, end = 0;
    for (int r = shard * load->each; r < (shard + 1) * load->each; r++) {
        parts[count] = part_of(load->from, param, r);
        count += parts[count].begin < parts[count].end;
    }
    qsort(parts, (size_t)count, sizeof *parts, by_begin);
    for (int i = 0; i < count; i++)
        if (end > 0 && parts[end - 1].end == parts[i].begin)
            parts[end - 1].end = parts[i].end;
        else
            parts[end++] = parts[i];
    return end;
}

static void make_shard(struct load *load, int s)
{
    struct ckpt_manifest *m = &load->manifest;
    struct ckpt_shard *shard = &m->shards[s];
    size_t most = (size_t)m->tensor_count * (size_t)load->each;
    shard->extents = malloc(most * sizeof *shard->extents);
    need(shard->extents != NULL);
    for (int t = 0; t < m->tensor_count; t++) {
        struct ckpt_part parts[NODE];
        int count = merged_parts(load, s, t, parts);
        for (int i = 0; i < count; i++) {
            struct ckpt_extent *extent = &shard->extents[shard->extent_count++];
            *extent = (struct ckpt_extent){ .tensor = t,
                                            .dims = load->items[t].dims,
                                            .part = parts[i],
                                            .offset = shard->bytes,
                                            .bytes = 4 * (parts[i].end -
                                                          parts[i].begin),
                                            .block = shard->block_count };
            shard->bytes += extent->bytes;
            shard->block_count += ckpt_manifest_block_count(extent->bytes);
        }
    }
    shard->extents =
        realloc(shard->extents,
                (size_t)shard->extent_count * sizeof *shard->extents + 1);
    need(shard->extents != NULL);
    shard->crc_offset = shard->bytes;
    shard->bytes += 4 * shard->block_count;
    ckpt_shard_name(s, m->shard_count, CKPT_SHARD_FOLDER_FILES, shard->file);
}

static void make_shards(struct load *load)
{
    struct ckpt_manifest *m = &load->manifest;
    m->shard_count = load->from->ranks / load->each;
    m->shards = calloc((size_t)m->shard_count, sizeof *m->shards);
    need(m->shards != NULL);
    for (int s = 0; s < m->shard_count; s++)
        make_shard(load, s);
}

static bool held(const struct load *load, int rank, int shard)
{
    return !load->local || rank / NODE == shard / NODE;
}

static void others(void *arg, int number, char *data, const size_t *bytes,
                   const size_t *offsets)
{
    struct load *load = arg;
    double begin_s = growth_clock();
    for (int r = 0; r < load->to->ranks; r++) {
        const struct ckpt_wants *wants = &load->wants[r];
        size_t held = 0;
        int list[NODE];
        for (int s = r / NODE * NODE; number >= 4 && s < r / NODE * NODE + NODE;
             s++)
            if (s < load->manifest.shard_count)
                list[held++] = s;
        size_t lengths[] = { wants->count * sizeof *wants->list, 0,
                             held * sizeof *list };
        const void *from[] = { wants->list, list, list };
        if (r != load->to->rank)
            memcpy(data + offsets[r],
                   number % 2 == 0 ? &lengths[number / 2] : from[number / 2],
                   bytes[r]);
    }
    load->others_s += growth_clock() - begin_s;
}

static void make(struct load *load, const char *preset, enum owner_cut cut,
                 int from, int to)
{
    bool blocks = cut == OWNER_CUT_BLOCKS;
    load->params = growth_params(preset);
    int nodes[] = { from % NODE == 0 ? NODE : 1, to % NODE == 0 ? NODE : 1 };
    need(owner_create_rows(load->params, cut, 0, from, blocks ? from : 1, 1,
                           nodes[0], &load->from) == ERR_OK &&
         owner_create_rows(load->params, cut, to / 2, to, blocks ? to : 1, 1,
                           nodes[1], &load->to) == ERR_OK);
    make_tensors(load);
    make_shards(load);
    load->wants = calloc((size_t)to, sizeof *load->wants);
    need(load->wants != NULL);
    for (int r = 0; r < to; r++) {
        struct ckpt_wants all;
        set_parts(load, load->to, r);
        need(ckpt_plan_wants(&load->manifest, load->items, load->item_of_tensor,
                             r, &all) == ERR_OK);
        /* in no more memory than they need */
        load->wants[r] = (struct ckpt_wants){ .count = all.count };
        load->wants[r].list = malloc(all.count * sizeof *all.list + 1);
        need(load->wants[r].list != NULL);
        memcpy(load->wants[r].list, all.list, all.count * sizeof *all.list);
        ckpt_plan_wants_free(&all);
    }
    set_parts(load, load->to, load->to->rank);
}

static void unmake(struct load *load)
{
    for (int s = 0; s < load->manifest.shard_count; s++)
        free(load->manifest.shards[s].extents);
    for (int r = 0; r < load->to->ranks; r++)
        free(load->wants[r].list);
    free(load->wants);
    free(load->manifest.shards);
    free(load->manifest.tensors);
    free(load->items);
    free(load->item_of_tensor);
    owner_destroy(load->from);
    owner_destroy(load->to);
}

/* One load's plan, from its messages to its last stretch. */
static bool plan(struct load *load, struct growth_cost *cost)
{
    struct ckpt_plan *plan = NULL;
    struct ckpt_stretch stretch;
    int rank = load->to->rank;
    struct comm *comm = stub_comm_create(rank, load->to->ranks, NODE);
    size_t shards = (size_t)load->manifest.shard_count;
    bool *holds = calloc(shards, sizeof *holds);
    struct ckpt_source source = { "run", load->local ? holds : NULL };
    int64_t bytes = 0, all = 0, own = 0, want = 0;
    need(holds != NULL);
    for (size_t s = 0; s < shards; s++)
        holds[s] = held(load, rank, (int)s);
    stub_comm_others(comm, others, load);
    load->others_s = 0;
    int64_t memory = growth_memory();
    double begin_s = growth_clock();
    bool good = ckpt_plan_create(comm, &source, &load->manifest, load->items,
                                 load->item_of_tensor, &plan) == ERR_OK;
    cost->memory = growth_memory() - memory;
    while (good && ckpt_plan_next(plan, &stretch)) {
        bytes += stretch.bytes;
        own += stretch.takers[0] == rank ? stretch.bytes : 0;
    }
    cost->seconds = growth_clock() - begin_s - load->others_s;
    cost->counts = stub_comm_counts(comm);
    for (int t = 0; t < load->manifest.tensor_count; t++) {
        all += 4 * load->manifest.tensors[t].elements;
        want += 4 * (load->items[t].part.end - load->items[t].part.begin);
    }
    ckpt_plan_destroy(plan);
    comm_destroy(comm);
    free(holds);
    /* a block of either end may be another's as well */
    return good && bytes == all &&
           own <=
               want + (int64_t)load->manifest.tensor_count * CKPT_BLOCK_BYTES;
}

static bool run(const char *preset, enum owner_cut cut, int from, int to,
                bool local, struct growth_cost *cost)
{
    struct load load = { .local = local, .each = 1 };
    make(&load, preset, cut, from, to);
    bool good = plan(&load, cost);
    unmake(&load);
    return good;
}

static bool load_same(int ranks, struct growth_cost *cost)
{
    return run("mpt-70b", OWNER_CUT_BLOCKS, ranks, ranks, false, cost);
}

static bool load_three(int ranks, struct growth_cost *cost)
{
    return run("mpt-70b", OWNER_CUT_BLOCKS, ranks, 3, false, cost);
}

static bool load_less(int ranks, struct growth_cost *cost)
{
    return run("mpt-70b", OWNER_CUT_BLOCKS, ranks, ranks - NODE, false, cost);
}

static bool load_local(int ranks, struct growth_cost *cost)
{
    return run("mpt-70b", OWNER_CUT_BLOCKS, ranks, ranks, true, cost);
}

static bool load_flat(int ranks, struct growth_cost *cost)
{
    return run("mpt-7b", OWNER_CUT_FLAT, ranks, ranks, false, cost);
}

/* The manifest of a save of files by node, which rank 0 makes and every rank of a
 * load parses; and the view of it, if one is made. It may have so many bytes at
 * GROWTH_FAR, of which the least are those of tensors and layers. What a node's ranks
 * have lies together: a file has one part of a block, two where that begins, and cuts a tensor at its ends. */
#define MANIFEST_BYTES_MAX 4000000
#define MANIFEST_BYTES_LEAST 400000
static bool manifest(int ranks, bool view, struct growth_cost *cost)
{
    struct load load = { .each = NODE };
    make(&load, "mpt-70b", OWNER_CUT_BLOCKS, ranks, 1);
    struct ckpt_manifest *m = &load.manifest, *parsed = NULL;
    json_t *state = json_object();
    struct ckpt_manifest_head head = { .step = 1,
                                       .ranks = ranks,
                                       .attempt = "1.1",
                                       .state = state,
                                       .items = load.items,
                                       .item_count = m->tensor_count };
    char *text = NULL;
    void *image = NULL;
    size_t bytes = 0;
    need(ckpt_manifest_format(&head, m->shards, m->shard_count, &text,
                              &bytes) == ERR_OK);
    int64_t memory = growth_memory();
    double begin_s = growth_clock();
    bool good = ckpt_manifest_parse(text, bytes, "it", &parsed) == ERR_OK;
    int64_t together = m->tensor_count + (int64_t)KINDS * m->shard_count *
                                             load.params->block_count;
    int64_t most = MANIFEST_BYTES_LEAST +
                   (int64_t)(MANIFEST_BYTES_MAX - MANIFEST_BYTES_LEAST) *
                       ranks / GROWTH_FAR;
    if (good && parsed->extents > together)
        good =
            err_set(ERR_INTERNAL, "%lld extents, not %lld at most",
                    (long long)parsed->extents, (long long)together) == ERR_OK;
    if ((int64_t)bytes > most)
        good =
            err_set(ERR_INTERNAL, "a manifest of %zu bytes", bytes) == ERR_OK;
    if (good && view && parsed->extents > CKPT_VIEW_EXTENTS) {
        begin_s = growth_clock();
        bytes = 0;
    } else if (good && view) {
        begin_s = growth_clock();
        good = ckpt_view_image(parsed, &image, &bytes) == ERR_OK;
    }
    cost->seconds = growth_clock() - begin_s;
    cost->memory = view ? (int64_t)bytes : growth_memory() - memory;
    cost->counts.bytes = (int64_t)bytes;
    if (!good)
        tap_note("%s", err_text());
    free(text);
    free(image);
    json_decref(state);
    ckpt_manifest_destroy(parsed);
    unmake(&load);
    return good;
}

static bool manifest_parsed(int ranks, struct growth_cost *cost)
{
    return manifest(ranks, false, cost);
}

static bool view_made(int ranks, struct growth_cost *cost)
{
    return manifest(ranks, true, cost);
}

const struct growth_row growth_loads[] = {
    { "load plan, 70b, P to P", GROWTH_START, 3, NULL, 0, load_same },
    { "load plan, 70b, P to 3", GROWTH_START, 3, NULL, 0, load_three },
    { "load plan, 70b, P to P - 8", GROWTH_START, 3, NULL, 0, load_less },
    { "load plan, 70b, from nodes", GROWTH_START, 3, NULL, 0, load_local },
    { "manifest parsed, 70b", GROWTH_START, 0, NULL, 0, manifest_parsed },
    { "view made, 70b", GROWTH_START, 0, NULL, 0, view_made },
    { "load plan, 7b zero1", GROWTH_START, 0, NULL, 0, load_flat },
    { 0 }
};
