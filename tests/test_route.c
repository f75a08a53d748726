/* Routes of all ranks of machines that are only described, carried out in this process:
 * what is sent is what the other side waits for, every piece of every leaf ends
 * with its owner, and the sum has the bits of the tree over leaves. */
#include <limits.h>

#include "kernels/kernels.h"
#include "src/parallel/route.h"
#include "tests/tap.h"

#define LAYOUTS 3000
#define LARGE 12 /* of them with up to 64 nodes of 16 ranks */
#define NODES_MAX 64

/* One rank: values of pieces that it has, [ranks] by the owner; NULL: none. */
struct side {
    struct route_plan *route;
    float **in, **left;
    int left_count;
    int64_t left_elements; /* that wait to be sent */
    struct route_traffic traffic, seen;
};

struct world {
    struct topology *topology;
    struct route_options options;
    struct owner owner;
    struct owner_block block;
    struct side *sides;
    int ranks, microsteps;
    int64_t least, between;
    const char *wrong; /* the first thing that was */
};

static uint64_t state = 32;

static int64_t below(int64_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)bound);
}

static void need(enum err rc)
{
    if (rc == ERR_OK)
        return;
    printf("Bail out! %s\n", err_text());
    exit(1);
}

static void expect(struct world *w, bool good, const char *what)
{
    if (!good && w->wrong == NULL)
        w->wrong = what;
}

/* A gradient of some size and sign; sums of them round in every order otherwise. */
static float leaf_value(int64_t leaf, int piece)
{
    uint64_t x = (uint64_t)leaf * 0x9E3779B97F4A7C15u + (uint64_t)piece;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    return ((float)(x & 0xFFFFFF) - 8388608.0f) * (float)(1 << (int)(x >> 60)) *
           1e-7f;
}

/* Node (level, index) of the tree, as tree.h defines it. */
static float node_value(const struct route_options *o, int level, int64_t index,
                        int piece)
{
    int64_t slots = o->leaves / o->chain;
    if (level == 0) {
        float sum = leaf_value(index * o->chain, piece);
        for (int i = 1; i < o->chain; i++)
            sum += leaf_value(index * o->chain + i, piece);
        return sum;
    }
    float sum = node_value(o, level - 1, 2 * index, piece);
    if ((2 * index + 1) << (level - 1) < slots)
        sum += node_value(o, level - 1, 2 * index + 1, piece);
    return sum;
}

static float tree_value(const struct route_options *o, int piece)
{
    int level = 0;
    while ((int64_t)1 << level < o->leaves / o->chain)
        level++;
    return node_value(o, level, 0, piece);
}

static int64_t elements(const struct world *w, int piece)
{
    int place = owner_place(&w->owner, 0, piece);
    return owner_begin(&w->owner, 0, place + 1) -
           owner_begin(&w->owner, 0, place);
}

static void drop(float **values)
{
    free(*values);
    *values = NULL;
}

/* --- a level of all ranks --- */

static void open_piece(struct world *w, int rank, int piece,
                       const struct route_level *l)
{
    struct side *s = &w->sides[rank];
    expect(w, s->in[piece] == NULL, "a piece is brought together twice");
    s->in[piece] = malloc(sizeof(float) * (size_t)(l->inputs + 1));
    for (int i = 0; i < l->inputs; i++)
        s->in[piece][i] = NAN;
}

/* How many parts of the block a list has. */
static int count_parts(const struct world *w, const struct route_plan *route,
                       const struct route_pieces *list)
{
    int parts = 0;
    for (int i = 0, end = -1; i < list->count; i++) {
        int place = owner_place(&w->owner, 0, route_piece(route, list, i));
        parts += place != end;
        end = place + 1;
    }
    return parts;
}

/* Between nodes that are alike, without further levels: each rank brings as many pieces
 * together, and those of a message lie together, but for the own ones of where they go,
 * and of its node, which interrupt those of shard groups. Blocks are turned, so that
 * a list, or its part of each shard, may go on at a front. */
static void count_pieces(struct world *w, const struct route_plan *route,
                         const struct route_level *l)
{
    const struct topology *t = w->topology;
    int parts = 0, dealt = w->block.degree % t->ranks;
    int pieces = 0, unit = w->options.group_nodes % t->nodes;
    int degree = w->options.degree;
    int most = degree > 0 ? 3 : unit == 0 ? 2 : 1;
    if (unit > 0)
        most = degree == unit * t->most ? unit : most + unit;
    for (int i = 0; i < l->brought.lists; i++)
        pieces += l->brought.pieces[i].count;
    expect(w, pieces == t->nodes, "ranks bring more together than others");
    for (int i = 0; i < l->sends.lists; i++)
        parts += count_parts(w, route, &l->sends.pieces[i]);
    expect(w,
           parts <= 2 * (most * t->most + degree) || (degree == 0 && dealt > 1),
           "messages in many parts");
}

static bool same_lists(const struct route_messages *a,
                       const struct route_messages *b)
{
    bool same = a->lists == b->lists;
    for (int i = 0; same && i < a->lists; i++)
        same = a->pieces[i].first == b->pieces[i].first &&
               a->pieces[i].count == b->pieces[i].count;
    return same;
}

/* What is held comes first, and then what the level below has left. */
static void open_level(struct world *w, int rank, int level, float **held)
{
    struct side *s = &w->sides[rank];
    const struct route_level *l = route_level(s->route, level);
    if (level == 1 && w->topology->least == w->topology->most &&
        w->options.radix == 0)
        count_pieces(w, s->route, l);
    if (level == 0) {
        int64_t first = route_first_leaf(s->route);
        for (int p = 0; p < w->ranks; p++) {
            open_piece(w, rank, p, l);
            for (int i = 0; i < l->inputs; i++)
                s->in[p][i] = leaf_value(first + i, p);
        }
    }
    expect(w, level == 0 || same_lists(&l->brought, &l->here),
           "an own piece comes from another rank");
    for (int i = 0; i < l->brought.lists; i++)
        for (int k = 0; k < l->brought.pieces[i].count; k++) {
            int p = route_piece(s->route, &l->brought.pieces[i], k);
            open_piece(w, rank, p, l);
            if (l->held > 0 && held != NULL && held[p] != NULL)
                memcpy(s->in[p], held[p], sizeof(float) * (size_t)l->held);
            if (held != NULL)
                drop(&held[p]);
        }
    expect(w, level == 0 || l->own == s->left_count, "values are lost between");
}

static void take_own(struct world *w, int rank, int level)
{
    struct side *s = &w->sides[rank];
    const struct route_level *l = route_level(s->route, level);
    for (int i = 0; i < l->here.lists; i++)
        for (int k = 0; k < l->here.pieces[i].count; k++) {
            int p = route_piece(s->route, &l->here.pieces[i], k);
            bool there =
                s->in[p] != NULL && (s->left[p] != NULL || l->own == 0);
            expect(w, there, "an own piece is not there");
            if (there && l->own > 0)
                memcpy(s->in[p] + l->own_at, s->left[p],
                       sizeof(float) * (size_t)l->own);
            drop(&s->left[p]);
        }
}

static const struct route_message *message_from(const struct route_level *l,
                                                int peer)
{
    for (int i = 0; i < l->receives.count; i++)
        if (l->receives.list[i].peer == peer)
            return &l->receives.list[i];
    return NULL;
}

static void send_message(struct world *w, int rank, int level,
                         const struct route_level *from,
                         const struct route_message *m)
{
    struct side *s = &w->sides[rank], *other = &w->sides[m->peer];
    const struct route_level *to = route_level(other->route, level);
    const struct route_message *r = message_from(to, rank);
    const int *node = w->topology->node;
    int64_t bytes = 0;
    bool alike = r != NULL && r->lists == m->lists && r->values == m->values;
    expect(w, alike, "a message that nobody waits for");
    for (int i = 0; alike && i < m->lists; i++) {
        const struct route_pieces *a = &from->sends.pieces[m->list + i];
        const struct route_pieces *b = &to->receives.pieces[r->list + i];
        expect(w, a->count == b->count, "lists of another length");
        for (int k = 0; k < a->count && k < b->count; k++) {
            int p = route_piece(s->route, a, k);
            bool there = p == route_piece(other->route, b, k) &&
                         other->in[p] != NULL &&
                         (s->left[p] != NULL || m->values == 0);
            expect(w, there, "a piece that is not there, or another one");
            if (there && m->values > 0)
                memcpy(other->in[p] + r->at, s->left[p],
                       sizeof(float) * (size_t)m->values);
            drop(&s->left[p]);
            bytes += 4 * m->values * elements(w, p);
        }
    }
    s->seen.messages += bytes > 0;
    s->seen.sent += bytes;
    s->seen.between += node[rank] != node[m->peer] ? bytes : 0;
    other->seen.held += bytes; /* received at this level */
}

static void add_up(struct world *w, int rank, int level)
{
    struct side *s = &w->sides[rank];
    const struct route_level *l = route_level(s->route, level);
    int64_t waiting = 0;
    for (int p = 0; p < w->ranks; p++) {
        expect(w, s->left[p] == NULL, "a value that nobody gets");
        if (s->in[p] == NULL)
            continue;
        for (int i = 0; i < l->inputs; i++)
            expect(w, !isnan(s->in[p][i]), "an input that nobody sends");
        for (int i = 0; i < l->add_count; i++)
            s->in[p][l->adds[i].into] += s->in[p][l->adds[i].from];
        s->left[p] = malloc(sizeof(float) * (size_t)(l->left_count + 1));
        for (int i = 0; i < l->left_count; i++)
            s->left[p][i] = s->in[p][l->left[i]];
        drop(&s->in[p]);
        waiting += 4 * l->left_count * elements(w, p);
    }
    int64_t now = s->seen.held + s->left_elements;
    s->seen.memory = now > s->seen.memory ? now : s->seen.memory;
    s->seen.held = 0;
    s->left_elements = level > 0 ? waiting : 0;
    s->left_count = l->left_count;
}

/* --- a step --- */

static void run_levels(struct world *w, int microstep, float **held)
{
    int first = 0, end = 0;
    bool some = false;
    for (int r = 0; r < w->ranks; r++) {
        struct side *s = &w->sides[r];
        some = route_microstep(s->route, microstep);
        s->traffic = s->seen = (struct route_traffic){ 0 };
        s->left_elements = 0;
        route_traffic(s->route, &w->owner, 0, &s->traffic);
    }
    route_levels(w->sides[0].route, &first, &end);
    for (int level = first; some && level < end; level++) {
        for (int r = 0; r < w->ranks; r++)
            open_level(w, r, level,
                       level == end - 1 ? held + (size_t)r * (size_t)w->ranks
                                        : NULL);
        for (int r = 0; r < w->ranks; r++) {
            const struct route_level *l = route_level(w->sides[r].route, level);
            for (int i = 0; i < l->sends.count; i++)
                send_message(w, r, level, l, &l->sends.list[i]);
            take_own(w, r, level);
        }
        for (int r = 0; r < w->ranks; r++)
            add_up(w, r, level);
    }
    for (int r = 0; some && r < w->ranks; r++) {
        struct side *s = &w->sides[r];
        w->between += s->seen.between;
        expect(w,
               s->seen.messages == s->traffic.messages &&
                   s->seen.sent == s->traffic.sent &&
                   s->seen.between == s->traffic.between,
               "another traffic than the route says");
        expect(w, s->seen.memory <= s->traffic.memory,
               "more memory than the route says");
        expect(w, s->left_elements == s->traffic.held,
               "more is held than the route says");
    }
}

/* Every node that has leaves sends one value of each piece to where it is not. */
static void count_least(struct world *w)
{
    const struct topology *t = w->topology;
    for (int n = 0; n < t->nodes; n++)
        for (int p = 0; p < w->ranks; p++) {
            bool leaves = false;
            for (int r = t->first[n]; r < t->first[n + 1]; r++)
                leaves |= route_level(w->sides[r].route, 0)->inputs > 0;
            if (leaves && t->node[p] != n)
                w->least += 4 * elements(w, p);
        }
}

static void run_step(struct world *w)
{
    size_t all = (size_t)w->ranks * (size_t)w->ranks;
    float **held = calloc(all, sizeof *held);
    bool ranges = w->options.group_nodes % w->topology->nodes != 0;
    for (int m = 0; m <= w->microsteps; m++) {
        run_levels(w, m, held);
        if (m < w->microsteps && (!ranges || m == 0))
            count_least(w);
        for (int r = 0; m < w->microsteps && r < w->ranks; r++)
            for (int p = 0; p < w->ranks; p++) {
                struct side *s = &w->sides[r];
                size_t at = (size_t)r * (size_t)w->ranks + (size_t)p;
                expect(w, held[at] == NULL, "what is held is forgotten");
                if (m + 1 < w->microsteps) {
                    held[at] = s->left[p];
                    s->left[p] = NULL;
                }
            }
    }
    for (int r = 0; r < w->ranks; r++)
        for (int p = 0; p < w->ranks; p++) {
            const struct side *s = &w->sides[r];
            expect(w, (s->left[p] != NULL) == (r == p), "not with its owner");
            if (r != p || s->left[p] == NULL)
                continue;
            float want = tree_value(&w->options, p);
            expect(w, s->left_count == 1, "not one sum");
            expect(w, memcmp(s->left[p], &want, sizeof want) == 0,
                   "other bits than the tree's");
        }
    expect(w, w->between >= w->least, "less than the least");
    free(held);
}

static void open_world(struct world *w)
{
    w->ranks = w->topology->ranks;
    w->owner = (struct owner){ .ranks = w->ranks, .block_count = 1 };
    w->owner.blocks = &w->block;
    w->sides = calloc((size_t)w->ranks, sizeof *w->sides);
    for (int r = 0; r < w->ranks; r++) {
        struct side *s = &w->sides[r];
        s->in = calloc((size_t)w->ranks, sizeof *s->in);
        s->left = calloc((size_t)w->ranks, sizeof *s->left);
        need(route_create(w->topology, r, &w->options, &s->route));
    }
    w->microsteps = route_microsteps(w->sides[0].route);
}

static void close_world(struct world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        struct side *s = &w->sides[r];
        for (int p = 0; p < w->ranks; p++) {
            drop(&s->in[p]);
            drop(&s->left[p]);
        }
        free(s->in);
        free(s->left);
        route_destroy(s->route);
    }
    free(w->sides);
    topology_destroy(w->topology);
}

/* --- layouts --- */

/* `size`: how many nodes and ranks there may be; even nodes half of the time. */
static void draw(struct world *w, bool large)
{
    static const int chains[] = { 1, 1, 1, 2, 4, 8, 3, 5 };
    static const int owns[] = { 1, 1, 1, 2, 4, 3 };
    int counts[NODES_MAX], ranks = 0;
    int nodes = 1 + (int)below(large ? NODES_MAX : below(4) > 0 ? 6 : 14);
    int most = 1 + (int)below(large ? 16 : below(4) > 0 ? 4 : 9);
    bool even = below(2) > 0;
    *w = (struct world){ .wrong = NULL };
    for (int n = 0; n < nodes; n++) {
        counts[n] = even ? most : 1 + (int)below(most);
        ranks += counts[n];
    }
    need(topology_describe(counts, nodes, &w->topology));
    w->options.chain = chains[below(8)];
    w->options.own_leaves = owns[below(large ? 3 : 6)];
    w->options.radix = below(3) > 0 ? 0 : 2 << below(3);
    int64_t turn = (int64_t)ranks * w->options.own_leaves;
    w->options.leaves =
        w->options.chain *
        (1 + below((large ? 1 : 3) * turn / w->options.chain + 2));
    if (even && below(2) > 0)
        do
            w->options.group_nodes = 1 + (int)below(nodes);
        while (nodes % w->options.group_nodes != 0);
    w->block.degree = 1 + (int)below(ranks);
    while (ranks % w->block.degree != 0)
        w->block.degree--;
    bool shards = w->block.degree > 1 && w->block.degree < ranks;
    w->options.degree = shards && below(2) == 0 ? w->block.degree : 0;
    w->block.turn = (int)below(5);
    w->block.elements = KERNEL_CHUNK * (1 + below(4 * ranks));
}

/* Several levels by hand, with last units short of anything. */
static void test_radix(void)
{
    struct world w;
    bool good = true;
    for (int nodes = 1; nodes <= 19 && good; nodes++)
        for (int way = 0; way < 8 && good; way++) {
            int counts[NODES_MAX];
            for (int n = 0; n < nodes; n++)
                counts[n] = 1 + way % 2;
            w = (struct world){ .options = { .chain = 1, .own_leaves = 1 } };
            need(topology_describe(counts, nodes, &w.topology));
            w.options.radix = (way & 2) != 0 ? 2 : 4;
            w.options.leaves = w.topology->ranks;
            w.block.degree = w.topology->ranks;
            if ((way & 4) != 0)
                w.options.degree = w.block.degree = counts[0];
            w.block.elements = (int64_t)KERNEL_CHUNK * w.topology->ranks;
            open_world(&w);
            run_step(&w);
            good = w.wrong == NULL;
            close_world(&w);
        }
    tap_ok(good, "radix 2 and 4 of 1 to 19 nodes: %s",
           good ? "whoever brings a piece together has what its own unit has"
                : w.wrong);
}

static void test_layouts(int count, bool large)
{
    struct world w;
    bool good = true;
    double worst = 0.0;
    int ranges = 0, uneven = 0, radix = 0;
    for (int i = 0; i < count && good; i++) {
        draw(&w, large);
        open_world(&w);
        ranges += route_microstep(w.sides[0].route, w.microsteps);
        uneven += w.topology->least < w.topology->most;
        radix += w.options.radix > 0 && w.options.radix < w.topology->nodes;
        run_step(&w);
        good = w.wrong == NULL;
        if (!good)
            tap_note("layout %d: %d nodes of %d to %d ranks, %lld leaves in "
                     "chains of %d, own %d, groups of %d, radix %d, degree %d",
                     i, w.topology->nodes, w.topology->least, w.topology->most,
                     (long long)w.options.leaves, w.options.chain,
                     w.options.own_leaves, w.options.group_nodes,
                     w.options.radix, w.options.degree);
        if (w.least > 0)
            worst = fmax(worst, (double)w.between / (double)w.least);
        close_world(&w);
    }
    tap_ok(good, "%d %slayouts: %s", count, large ? "large " : "",
           good ? "the tree's bits at every owner, messages, bytes and memory "
                  "as the routes say"
                : w.wrong);
    tap_ok(ranges > 0 && uneven > 0 && radix > 0,
           "%d with ranges, %d uneven, %d with more levels", ranges, uneven,
           radix);
    tap_note("the most bytes between nodes: %.2f of the least", worst);
}

int main(void)
{
    test_radix();
    test_layouts(LAYOUTS, false);
    test_layouts(LARGE, true);
    return tap_done();
}
