/* The plan of a load beside one that asks every rank for every block: the same
 * stretches, readers and takers, for random tensors, cuts into intervals and
 * boxes, and folders that only some ranks can open. */
#include "checkpoint/ckpt_load_private.h"
#include "checkpoint/ckpt_place.h"
#include "tests/growth/stub_comm.h"
#include "tests/tap.h"

#define RANKS_MAX 12
#define TENSORS_MAX 6
#define SHARDS_MAX 5
#define EXTENTS_MAX (TENSORS_MAX * SHARDS_MAX)

static uint64_t state = 7;

static int64_t below(int64_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)bound);
}

struct world {
    int ranks, tensors, shards;
    struct ckpt_manifest manifest;
    struct ckpt_tensor list[TENSORS_MAX];
    struct ckpt_shard shard[SHARDS_MAX];
    struct ckpt_extent extents[SHARDS_MAX][EXTENTS_MAX];
    struct ckpt_item items[RANKS_MAX][TENSORS_MAX];
    int item_of_tensor[TENSORS_MAX];
    bool holds[RANKS_MAX][SHARDS_MAX];
    bool everywhere;
    struct ckpt_wants wants[RANKS_MAX];
    int64_t duty[RANKS_MAX];
};

/* Tensors from one element to several blocks. */
static void make_tensors(struct world *w)
{
    for (int t = 0; t < w->tensors; t++) {
        struct ckpt_tensor *tensor = &w->list[t];
        *tensor = (struct ckpt_tensor){ .dtype = DTYPE_F32,
                                        .dims = 2,
                                        .elements = 1 };
        tensor->shape[0] = 1 + below(60);
        tensor->shape[1] = 1 + below(below(2) > 0 ? 90000 : 60);
        tensor->elements = tensor->shape[0] * tensor->shape[1];
        w->item_of_tensor[t] = below(8) == 0 ? -1 : t;
    }
}

static struct ckpt_part random_part(const struct ckpt_tensor *tensor)
{
    struct ckpt_part part = { 0 };
    int64_t a = below(tensor->elements + 1), b = below(tensor->elements + 1);
    switch (below(5)) {
    case 0: /* nothing */
        return part;
    case 1:
        part.end = tensor->elements;
        return part;
    case 2:
        part.begin = a < b ? a : b;
        part.end = a < b ? b : a;
        return part;
    default:
        part.boxed = true;
        for (int d = 0; d < 2; d++) {
            part.origin[d] = below(tensor->shape[d] + 1);
            part.sides[d] = below(tensor->shape[d] - part.origin[d] + 1);
        }
        return part;
    }
}

/* `even`: neighbours of an even cut, as training has them. */
static struct ckpt_part even_part(const struct ckpt_tensor *tensor, int place,
                                  int places)
{
    return (struct ckpt_part){ .begin = tensor->elements * place / places,
                               .end = tensor->elements * (place + 1) / places };
}

static void add_extent(struct world *w, int s, int t, struct ckpt_part part)
{
    struct ckpt_shard *shard = &w->shard[s];
    const struct ckpt_tensor *tensor = &w->list[t];
    ckpt_part_normalise(&part, tensor->dims, tensor->shape);
    int64_t elements = ckpt_part_elements(&part, tensor->dims);
    if (elements == 0)
        return;
    shard->extents[shard->extent_count++] = (struct ckpt_extent){
        .tensor = t, .dims = tensor->dims, .part = part, .bytes = elements * 4
    };
}

/* Each tensor as intervals, or as columns of several shards. */
static void make_shards(struct world *w)
{
    for (int s = 0; s < w->shards; s++) {
        w->shard[s].extents = w->extents[s];
        w->shard[s].extent_count = 0;
        snprintf(w->shard[s].file, sizeof w->shard[s].file, "shard-%d", s);
    }
    for (int t = 0; t < w->tensors; t++) {
        bool columns = below(3) == 0;
        for (int s = 0; s < w->shards; s++) {
            struct ckpt_part part = even_part(&w->list[t], s, w->shards);
            int64_t width = w->list[t].shape[1];
            if (columns) {
                part = (struct ckpt_part){ .boxed = true };
                part.origin[1] = width * s / w->shards;
                part.sides[0] = w->list[t].shape[0];
                part.sides[1] = width * (s + 1) / w->shards - part.origin[1];
            }
            add_extent(w, s, t, part);
        }
    }
}

static void make_world(struct world *w)
{
    bool even = below(2) > 0, replicas = below(3) == 0;
    *w = (struct world){ .ranks = 1 + (int)below(RANKS_MAX),
                         .tensors = 1 + (int)below(TENSORS_MAX),
                         .shards = 1 + (int)below(SHARDS_MAX),
                         .everywhere = below(2) > 0 };
    make_tensors(w);
    make_shards(w);
    w->manifest = (struct ckpt_manifest){ .tensors = w->list,
                                          .tensor_count = w->tensors,
                                          .shards = w->shard,
                                          .shard_count = w->shards };
    for (int r = 0; r < w->ranks; r++) {
        for (int t = 0; t < w->tensors; t++)
            w->items[r][t].part =
                !even ? random_part(&w->list[t])
                      : even_part(&w->list[t], replicas ? r / 2 : r,
                                  replicas ? w->ranks / 2 + 1 : w->ranks);
        for (int t = 0; t < w->tensors; t++) {
            w->items[r][t].dims = w->list[t].dims;
            memcpy(w->items[r][t].shape, w->list[t].shape,
                   sizeof w->list[t].shape);
        }
        for (int s = 0; s < w->shards; s++)
            w->holds[r][s] = w->everywhere || below(3) > 0;
    }
}

/* What the others bring: lengths and lists, of wants, of boxes and of shards. */
static void others(void *arg, int number, char *data, const size_t *bytes,
                   const size_t *offsets)
{
    const struct world *w = arg;
    for (int r = 0; r < w->ranks; r++) {
        const struct ckpt_wants *wants = &w->wants[r];
        int list[SHARDS_MAX];
        size_t held = 0;
        for (int s = 0; s < w->shards; s++)
            if (w->holds[r][s])
                list[held++] = s;
        size_t lengths[] = { wants->count * sizeof *wants->list,
                             wants->box_count * sizeof *wants->boxes,
                             held * sizeof *list };
        const void *from[] = { wants->list, wants->boxes, list };
        memcpy(data + offsets[r],
               number % 2 == 0 ? &lengths[number / 2] : from[number / 2],
               bytes[r]);
    }
}

/* --- the plan by asking all --- */

static bool wanted(const struct world *w, int rank,
                   const struct ckpt_extent *extent, int64_t first, int64_t end)
{
    const struct ckpt_tensor *tensor = &w->list[extent->tensor];
    return w->item_of_tensor[extent->tensor] >= 0 &&
           ckpt_place_touches(tensor->dims, tensor->shape, &extent->part, first,
                              end, &w->items[rank][extent->tensor].part);
}

/* The least busy of those that hold the shard and, if `takers`, want it. */
static int least_busy(const struct world *w, int shard, const bool *takers)
{
    int best = -1;
    for (int r = 0; r < w->ranks; r++)
        if (w->holds[r][shard] && (takers == NULL || takers[r]) &&
            (best < 0 || w->duty[r] < w->duty[best]))
            best = r;
    return best;
}

/* One block of the reference; how many take it. */
static int block_of(const struct world *w, int shard,
                    const struct ckpt_extent *extent, int64_t first,
                    int64_t end, bool *takers)
{
    int count = 0;
    (void)shard;
    for (int r = 0; r < w->ranks; r++) {
        takers[r] = wanted(w, r, extent, first, end);
        count += takers[r];
    }
    return count;
}

static bool takers_are(const struct world *w, const struct ckpt_stretch *got,
                       const bool *takers, int count)
{
    int at = 0;
    bool good = got->taker_count == count;
    for (int r = 0; r < w->ranks && good; r++)
        if (takers[r])
            good = got->takers[at++] == r;
    return good;
}

/* Whether the plan's stretches are the reference's blocks, of which private ones
 * in a row are one stretch. */
static bool same_plan(struct world *w, struct ckpt_plan *plan)
{
    struct ckpt_stretch got;
    bool good = true, has = ckpt_plan_next(plan, &got);
    int64_t size = CKPT_BLOCK_BYTES / 4;
    for (int s = 0; s < w->shards && good; s++)
        for (int e = 0; e < w->shard[s].extent_count && good; e++) {
            const struct ckpt_extent *extent = &w->shard[s].extents[e];
            int64_t elements = extent->bytes / 4;
            for (int64_t first = 0; first < elements && good; first += size) {
                int64_t end = first + size < elements ? first + size : elements;
                bool takers[RANKS_MAX];
                int count = block_of(w, s, extent, first, end, takers);
                if (count == 0)
                    continue;
                int reader = least_busy(w, s, takers);
                bool private = count == 1 && reader >= 0;
                if (reader < 0)
                    reader = least_busy(w, s, NULL);
                w->duty[reader] += (end - first) * 4;
                good = has && got.shard == s && got.extent == extent &&
                       got.first <= first && end <= got.end &&
                       got.reader == reader && got.private == private &&
                       takers_are(w, &got, takers, count) &&
                       (private || (got.first == first && got.end == end));
                if (good && end == got.end)
                    has = ckpt_plan_next(plan, &got);
            }
        }
    return good && !has;
}

/* Some shard that somebody wants is nowhere. */
static bool is_missing(const struct world *w)
{
    for (int s = 0; s < w->shards; s++)
        for (int e = 0; e < w->shard[s].extent_count; e++)
            for (int r = 0; r < w->ranks; r++)
                if (least_busy(w, s, NULL) < 0 &&
                    wanted(w, r, &w->shard[s].extents[e], 0,
                           w->shard[s].extents[e].bytes / 4))
                    return true;
    return false;
}

static bool test_world(struct world *w, int rank)
{
    struct ckpt_plan *plan = NULL;
    struct comm *comm = stub_comm_create(rank, w->ranks, 1);
    struct ckpt_source source = { "run",
                                  w->everywhere ? NULL : w->holds[rank] };
    memset(w->duty, 0, sizeof w->duty);
    stub_comm_others(comm, others, w);
    enum err rc = ckpt_plan_create(comm, &source, &w->manifest, w->items[rank],
                                   w->item_of_tensor, &plan);
    bool good = is_missing(w) ? rc == ERR_CHECKPOINT && plan == NULL
                              : rc == ERR_OK && same_plan(w, plan);
    ckpt_plan_destroy(plan);
    comm_destroy(comm);
    return good;
}

int main(void)
{
    static struct world w;
    int wrong = 0, missing = 0, worlds = 400;
    for (int i = 0; i < worlds; i++) {
        make_world(&w);
        bool good = true;
        for (int r = 0; r < w.ranks; r++)
            good &= ckpt_plan_wants(&w.manifest, w.items[r], w.item_of_tensor,
                                    r, &w.wants[r]) == ERR_OK;
        good &= test_world(&w, 0) && test_world(&w, w.ranks - 1);
        missing += is_missing(&w);
        for (int r = 0; r < w.ranks; r++)
            ckpt_plan_wants_free(&w.wants[r]);
        wrong += !good;
        if (!good)
            tap_note("world %d: %d ranks, %d tensors, %d shards", i, w.ranks,
                     w.tensors, w.shards);
    }
    tap_is_int(wrong, 0, "%d plans: the stretches of asking every rank",
               worlds);
    tap_ok(missing > 5 && missing < worlds / 2,
           "%d of them want what no rank can open", missing);
    return tap_done();
}
