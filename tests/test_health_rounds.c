/* Every small fault must be blamed on the right rank, link or leaf switch, and
 * nobody else, by bandwidth or by small messages. Meetings are simulated: without noise exactly, with noise as often
 * as it must be. */
#include "healthcheck/health_rounds.h"

#include "src/base/rng.h"
#include "tests/tap.h"

#define SIZE_MAX_HERE 65
#define RATIO 0.95

struct fault {
    int rank;           /* -1: none */
    int second;         /* another sick rank; -1: none */
    int link_a, link_b; /* equal: none */
    int leaf;           /* whose way to the others is; -1: none */
    bool inside;        /* and between its ranks as well */
    double factor;      /* of the speed */
    double late; /* how many times as long a small message takes; 0: as long */
    int64_t wrong;
};

static const struct fault sound = { .rank = -1, .second = -1, .leaf = -1 };

struct game {
    int size, leaves;
    double floor;
    double noise; /* 0: some spread, the same in every run */
    uint64_t seed;
    struct health_rounds rounds;
    int leaf[SIZE_MAX_HERE];
    int links, named, slow_leaves;
};

static bool sick(const struct game *game, const struct fault *fault, int a,
                 int b)
{
    bool link = fault->link_a != fault->link_b &&
                ((a == fault->link_a && b == fault->link_b) ||
                 (a == fault->link_b && b == fault->link_a));
    bool from = game->leaf[a] == fault->leaf, to = game->leaf[b] == fault->leaf;
    return link || a == fault->rank || b == fault->rank || a == fault->second ||
           b == fault->second || (fault->inside ? from || to : from != to);
}

static void measure(struct game *game, const struct fault *fault)
{
    struct health_rounds *rounds = &game->rounds;
    for (int i = rounds->first; i < rounds->count; i++) {
        struct health_meeting *meeting = &rounds->meetings[i];
        int a = meeting->a, b = meeting->b;
        bool ill = sick(game, fault, a, b);
        double spread =
            game->noise > 0
                ? 1 + game->noise * rng_normal(game->seed, 7, (uint64_t)i)
                : 1 + 0.03 * (double)((a * 7 + b * 3) % 5 - 2) / 2;
        double late = ill && fault->late > 0 ? fault->late : 1;
        double other =
            1 + 3 * game->noise * rng_normal(game->seed, 8, (uint64_t)i);
        meeting->rates[HEALTH_BANDWIDTH] =
            10 * spread * (ill ? fault->factor : 1);
        meeting->rates[HEALTH_PROMPTNESS] = 1 / (20 * late * other);
        meeting->wrong = ill ? fault->wrong : 0;
    }
}

/* False: two meetings of a wave share a rank, or two ranks meet twice but for
 * repetitions. */
static bool well_formed(const struct health_rounds *rounds)
{
    for (int i = 0; i < rounds->count; i++) {
        const struct health_meeting *m = &rounds->meetings[i];
        if (m->a == m->b || m->a < 0 || m->b < 0 || m->a >= rounds->size ||
            m->b >= rounds->size)
            return false;
        for (int j = 0; j < i; j++) {
            const struct health_meeting *o = &rounds->meetings[j];
            bool shared =
                m->a == o->a || m->a == o->b || m->b == o->a || m->b == o->b;
            bool same = (m->a == o->a && m->b == o->b) ||
                        (m->a == o->b && m->b == o->a);
            bool apart = m->round == HEALTH_ROUND_LEAVES || m->again_of >= 0;
            if ((same && !apart) ||
                (shared && m->round == o->round && m->wave == o->wave))
                return false;
        }
    }
    return true;
}

/* The caller destroys the rounds. */
static void play(struct game *game, const struct fault *fault)
{
    struct health_rounds *rounds = &game->rounds;
    int leaves = game->leaves > 0 ? game->leaves : 1;
    for (int rank = 0; rank < game->size; rank++)
        game->leaf[rank] = rank * leaves / game->size;
    if (health_rounds_create(game->size, game->leaf, RATIO, game->floor,
                             rounds) != ERR_OK)
        abort();
    while (health_rounds_next(rounds) > 0) {
        measure(game, fault);
        health_rounds_judge(rounds);
    }
    health_rounds_blame(rounds);
    game->links = game->named = game->slow_leaves = 0;
    for (int i = 0; i < rounds->count; i++)
        game->links += health_rounds_is_link(rounds, &rounds->meetings[i]);
    for (int rank = 0; rank < game->size; rank++)
        game->named += rounds->states[rank] != HEALTH_OK;
    for (int leaf = 0; leaf < leaves; leaf++)
        game->slow_leaves += rounds->slow_leaves[leaf];
}

static void test_single_faults(void)
{
    static const struct {
        const char *name;
        double factor;
        int64_t wrong;
        double floor;
        enum health_state want;
    } kinds[] = {
        { "healthy", 1, 0, 0, HEALTH_OK },
        { "slow", 0.4, 0, 0, HEALTH_WARN },
        { "slow below a floor", 0.6, 0, 8, HEALTH_BAD },
        { "wrong", 1, 3, 0, HEALTH_BAD },
        { "late", 1, 0, 0, HEALTH_WARN },
    };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int mistakes = 0;
        int games = 0;
        for (int size = 3; size <= SIZE_MAX_HERE; size++) {
            for (int ill = 0; ill < size; ill++, games++) {
                struct game game = { .size = size, .floor = kinds[k].floor };
                struct fault fault = sound;
                fault.rank = ill;
                fault.factor = kinds[k].factor;
                fault.wrong = kinds[k].wrong;
                fault.late = strcmp(kinds[k].name, "late") == 0 ? 5 : 0;
                play(&game, &fault);
                bool good = well_formed(&game.rounds) && game.links == 0 &&
                            game.rounds.states[ill] == kinds[k].want &&
                            game.named == (kinds[k].want != HEALTH_OK);
                /* of three ranks, the first met both in round 1: when it is
                 * sick nobody had a good meeting, and nobody is cleared */
                bool hopeless = size == 3 && ill == 0;
                if (!good && !hopeless) {
                    mistakes++;
                    tap_note("%s: size %d, rank %d", kinds[k].name, size, ill);
                }
                health_rounds_destroy(&game.rounds);
            }
        }
        tap_is_int(mistakes, 0, "%s: right in %d games", kinds[k].name, games);
    }
}

static void test_two_faults(void)
{
    int mistakes = 0, size = 16;
    for (int a = 0; a < size; a++) {
        for (int b = a + 1; b < size; b++) {
            struct game game = { .size = size };
            struct fault fault = sound;
            fault.rank = a;
            fault.second = b;
            fault.factor = 0.4;
            play(&game, &fault);
            mistakes += !well_formed(&game.rounds) || game.named != 2 ||
                        game.rounds.states[a] != HEALTH_WARN ||
                        game.rounds.states[b] != HEALTH_WARN;
            health_rounds_destroy(&game.rounds);
        }
    }
    tap_is_int(mistakes, 0, "two slow ranks of %d are named", size);
}

static void test_links(void)
{
    int mistakes = 0;
    for (int size = 6; size <= 32; size += 2) {
        for (int a = 0; a < size; a += 2) {
            struct game game = { .size = size };
            struct fault fault = sound;
            fault.link_a = a;
            fault.link_b = a + 1;
            fault.factor = 0.4;
            play(&game, &fault);
            mistakes += game.links != 1 || game.named != 0;
            health_rounds_destroy(&game.rounds);
        }
    }
    tap_is_int(mistakes, 0, "a slow link is blamed on no rank");
}

static void test_hopeless(void)
{
    struct game two = { .size = 2 }, four = { .size = 4, .floor = 1000 };
    struct fault fault = sound;
    fault.rank = 0;
    fault.factor = 1;
    fault.wrong = 5;
    play(&two, &fault);
    tap_is_int(two.rounds.count, 1, "two ranks meet once");
    tap_ok(two.rounds.states[0] == HEALTH_UNKNOWN &&
               two.rounds.states[1] == HEALTH_UNKNOWN,
           "of two ranks neither can be blamed");
    health_rounds_destroy(&two.rounds);
    play(&four, &sound);
    tap_is_int(four.rounds.count, 2, "nobody is good: no more rounds");
    tap_ok(four.rounds.states[0] == HEALTH_WARN &&
               four.rounds.states[3] == HEALTH_WARN,
           "a floor that all miss names nobody");
    health_rounds_destroy(&four.rounds);
}

/* 64 nodes on 8 leaves whose speeds have a deviation of 3 %, and what small messages
 * take one of 9 %. */
static void test_noise(void)
{
    enum what { NOBODY, RANK, LINK, WAY, INSIDE };
    static const struct {
        const char *name;
        enum what what;
        double factor, late;
        int sweeps, least; /* of those in which exactly that is named */
    } cases[] = {
        { "all are sound", NOBODY, 1, 1, 200, 199 },
        { "a node is slower by 15 %", RANK, 0.85, 1, 200, 195 },
        { "a link is slower by 25 %", LINK, 0.75, 1, 100, 95 },
        { "the way to a leaf is slower by 25 %", WAY, 0.75, 1, 100, 95 },
        { "a leaf is slower by 25 % in all", INSIDE, 0.75, 1, 100, 95 },
        { "a node's small messages take thrice as long", RANK, 1, 3, 200, 195 },
        { "a link's small messages do", LINK, 1, 3, 100, 95 },
        { "those on the way to a leaf do", WAY, 1, 3, 100, 95 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int right = 0, drained = 0;
        for (int sweep = 0; sweep < cases[i].sweeps; sweep++) {
            struct game game = { .size = 64,
                                 .leaves = 8,
                                 .noise = 0.03,
                                 .seed = (uint64_t)(sweep + 1000 * (int)i) };
            struct fault fault = sound;
            enum what what = cases[i].what;
            int which = (sweep * 29 + 5) % 64;
            fault.factor = cases[i].factor;
            fault.late = cases[i].late;
            fault.rank = what == RANK ? which : -1;
            fault.link_a = what == LINK ? which / 2 * 2 : 0;
            fault.link_b = what == LINK ? fault.link_a + 1 : 0;
            fault.leaf = what >= WAY ? which / 8 : -1;
            fault.inside = what == INSIDE;
            play(&game, &fault);
            const struct health_rounds *rounds = &game.rounds;
            right += game.named == (what == RANK) &&
                     game.links == (what == LINK) &&
                     game.slow_leaves == (what >= WAY) &&
                     (what != RANK || rounds->states[which] == HEALTH_WARN) &&
                     (what < WAY || rounds->slow_leaves[which / 8]);
            for (int rank = 0; rank < 64; rank++)
                drained += rounds->states[rank] == HEALTH_BAD;
            health_rounds_destroy(&game.rounds);
        }
        tap_ok(right >= cases[i].least, "%s: told by %d of %d sweeps",
               cases[i].name, right, cases[i].sweeps);
        tap_is_int(drained, 0, "%s: nobody is drained", cases[i].name);
    }
}

/* Leaves of any number and size: who is slow is named, and of two both. */
static void test_leaves(void)
{
    int mistakes = 0, games = 0;
    for (int size = 6; size <= SIZE_MAX_HERE; size++) {
        for (int leaves = 2; leaves <= size / 3; leaves++, games++) {
            struct game game = { .size = size, .leaves = leaves };
            struct fault fault = sound;
            fault.leaf = size % leaves;
            fault.factor = 0.3;
            play(&game, &fault);
            bool good = game.rounds.slow_leaves[fault.leaf] &&
                        game.named == 0 && game.links == 0 &&
                        game.slow_leaves == (leaves == 2 ? 2 : 1);
            if (!good || !well_formed(&game.rounds)) {
                mistakes++;
                tap_note("%d ranks, %d leaves: %d named, %d leaves, %d links",
                         size, leaves, game.named, game.slow_leaves,
                         game.links);
            }
            health_rounds_destroy(&game.rounds);
        }
    }
    tap_is_int(mistakes, 0, "a slow leaf of any is named in %d games", games);
}

/* What a job of that size costs each of its ranks, where nothing is well. */
static void test_large(void)
{
    enum { LARGE = 16384 };
    static int leaf[LARGE];
    struct health_rounds rounds;
    for (int rank = 0; rank < LARGE; rank++)
        leaf[rank] = rank / 32;
    if (health_rounds_create(LARGE, leaf, RATIO, 5, &rounds) != ERR_OK)
        abort();
    while (health_rounds_next(&rounds) > 0) {
        for (int i = rounds.first; i < rounds.count; i++) {
            struct health_meeting *meeting = &rounds.meetings[i];
            bool good = meeting->a < 2 && meeting->b < 2;
            meeting->rates[HEALTH_BANDWIDTH] = good ? 10 : 1;
            meeting->rates[HEALTH_PROMPTNESS] = 1;
            meeting->wrong = 0;
        }
        health_rounds_judge(&rounds);
    }
    health_rounds_blame(&rounds);
    tap_ok(rounds.count < 3 * LARGE, "%d ranks, two of them good: %d meetings",
           LARGE, rounds.count);
    tap_is_int(rounds.states[0], HEALTH_OK, "who is good is");
    health_rounds_destroy(&rounds);
}

int main(void)
{
    test_single_faults();
    test_two_faults();
    test_links();
    test_hopeless();
    test_noise();
    test_leaves();
    test_large();
    return tap_done();
}
