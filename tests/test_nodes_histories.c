/* Jobs whose nodes turn bad, are slow, fall silent and are given back, at random,
 * over many checks. What must hold of each check:
 *
 *   bad       who was found bad, or told nothing, is not among those that train
 *   order     who is warned of, or was bad lately, stands behind all others
 *   place     each node is in one place, and in none that its verdict denies
 *   asked     only who may be used is asked, and nobody whose verdict is known
 *             looks at itself again
 *   given     none but bad ones, and all of them but the launch script's, and
 *             only where the job goes on
 *   line      each bad verdict and each warning has its line, and nothing else
 *   end       a check ends, and a quick one after its first answer, unless suspects are needed */

#include "src/base/rng.h"
#include "src/control/nodes.h"
#include "tests/histories.h"

#define NODES_MAX 24
#define CALLS_MAX 11 /* three starts of a check, three checks, pairs, the end */

static struct world {
    uint64_t seed, draws;
    bool verbose;
    double sick, warn, unsure, silent, away, fails;
    int host;
} w;
static int violations;
/* A second book: the last verdict of this check, -1 none, and the doubts about a
 * node in this job: 1 it was warned of, 2 it was bad lately. */
static int told[NODES_MAX], doubts[NODES_MAX];

static double draw(void)
{
    return rng_uniform(w.seed, 3, w.draws++);
}

static bool chance(double p)
{
    return draw() < p;
}

static void broken(const char *what, const char *node)
{
    if (violations++ < 20)
        printf("seed %llu: %s broken: %s\n", (unsigned long long)w.seed, what,
               node);
}

/* What comes of the step that was asked for. */
static void answer(struct nodes *nodes, bool pairs)
{
    bool none = chance(w.fails);
    nodes->late = chance(0.1);
    nodes->code = none || chance(0.1);
    for (int i = 0; i < nodes->count; i++) {
        struct nodes_node *node = &nodes->list[i];
        node->code = NULL;
        node->verdict = NODES_UNSURE;
        if (!node->asked || none || chance(w.silent))
            continue;
        node->code = "X";
        node->reason = "x";
        node->verdict = chance(w.sick)     ? NODES_SICK
                        : chance(w.warn)   ? NODES_WARN
                        : chance(w.unsure) ? NODES_UNSURE
                                           : NODES_OK;
    }
    none = true;
    for (int i = 0; i < nodes->count; i++)
        none = none && !(nodes->list[i].asked && nodes->list[i].code != NULL);
    for (int i = 0; i < nodes->count; i++)
        if (nodes->list[i].asked && !(pairs && none)) {
            told[i] = (int)nodes->list[i].verdict;
            if (told[i] == NODES_SICK)
                doubts[i] = 2;
            else if (told[i] == NODES_WARN && doubts[i] == 0)
                doubts[i] = 1;
        }
}

static void check_lines(const struct nodes *nodes, const bool *asked,
                        bool silent_pairs)
{
    for (int i = 0; i < nodes->count; i++) {
        const struct nodes_node *node = &nodes->list[i];
        const char *event = nodes_event(node);
        const char *want = !asked[i] || silent_pairs ? NULL
                           : told[i] == NODES_SICK   ? "exclude"
                           : told[i] == NODES_WARN   ? "node-warning"
                                                     : NULL;
        char words[256];
        nodes_say(node, words, sizeof words);
        if ((event == NULL) != (want == NULL) ||
            (event != NULL && strcmp(event, want) != 0) ||
            (want != NULL && strstr(words, node->name) == NULL))
            broken("line", node->name);
    }
}

static void check_asked(const struct nodes *nodes, enum nodes_what what)
{
    int asked = 0;
    for (int i = 0; i < nodes->count; i++) {
        const struct nodes_node *node = &nodes->list[i];
        asked += node->asked;
        if (node->asked && (!node->usable || !node->allocated))
            broken("asked", node->name);
        if (node->asked && what == NODES_PAIRS &&
            (told[i] == NODES_SICK || told[i] <= NODES_UNSURE))
            broken("asked", node->name);
        if (node->asked && what < NODES_PAIRS && told[i] > NODES_UNSURE)
            broken("asked", node->name);
    }
    if (what == NODES_PAIRS && (asked < 2 || nodes->quick))
        broken("asked", "pairs");
    if (what == NODES_AGAIN &&
        (asked == 0 || nodes_count(nodes, NODES_GOOD) >=
                           (nodes->quick ? nodes->wanted_min : nodes->wanted)))
        broken("asked", "again");
}

static void check_end(const struct nodes *nodes)
{
    int order[NODES_MAX], seen[NODES_MAX] = { 0 };
    int good = nodes_order(nodes, order), places = 0;
    bool on = good >= nodes->wanted_min;
    for (int i = 0; i < good; i++) {
        const struct nodes_node *node = &nodes->list[order[i]];
        if (told[order[i]] != NODES_OK && told[order[i]] != NODES_WARN)
            broken("bad", node->name);
        if (i > 0 && doubts[order[i]] < doubts[order[i - 1]])
            broken("order", node->name);
        if (seen[order[i]]++ > 0)
            broken("place", node->name);
    }
    for (int place = NODES_AWAY; place <= NODES_GOOD; place++)
        places += nodes_count(nodes, (enum nodes_place)place);
    for (int i = 0; i < nodes->count; i++) {
        const struct nodes_node *node = &nodes->list[i];
        enum nodes_place want = !node->usable             ? NODES_AWAY
                                : told[i] <= NODES_UNSURE ? NODES_UNKNOWN
                                : told[i] == NODES_SICK   ? NODES_BAD
                                                          : NODES_GOOD;
        places -= node->allocated;
        if (!node->allocated)
            continue;
        if (node->place != want || (want == NODES_GOOD) != (seen[i] == 1))
            broken("place", node->name);
        if (node->given != (on && want == NODES_BAD && i != w.host))
            broken("given", node->name);
    }
    if (places != 0)
        broken("place", "all");
}

static void check_once(struct nodes *nodes, int number)
{
    enum nodes_what what = NODES_CHECK;
    bool asked[NODES_MAX], pairs = false;
    nodes->at = nodes->tries = nodes->again = 0;
    nodes->quick = number > 0;
    for (int i = 0; i < nodes->count; i++) {
        told[i] = -1;
        nodes->list[i].usable = nodes->list[i].allocated && !chance(w.away);
    }
    for (int calls = 0;; calls++) {
        bool none = true;
        for (int i = 0; i < nodes->count; i++) {
            asked[i] = calls > 0 && nodes->list[i].asked;
            none = none && !(asked[i] && nodes->list[i].code != NULL);
        }
        what = nodes_next(nodes);
        if (w.verbose)
            printf("%d: %s, %d good\n", number, nodes_what_names[what],
                   nodes_count(nodes, NODES_GOOD));
        check_lines(nodes, asked, pairs && none);
        if (what == NODES_GO)
            break;
        if (calls == CALLS_MAX) {
            broken("end", nodes_what_names[what]);
            return;
        }
        check_asked(nodes, what);
        pairs = what == NODES_PAIRS;
        answer(nodes, pairs);
    }
    check_end(nodes);
}

static void history(uint64_t seed, bool verbose)
{
    static char names[NODES_MAX][8];
    struct nodes_node list[NODES_MAX] = { 0 };
    w = (struct world){ .seed = seed, .verbose = verbose };
    w.sick = chance(0.5) ? 0.3 * draw() : 0;
    w.warn = chance(0.5) ? 0.5 * draw() : 0;
    w.unsure = chance(0.3) ? draw() : 0;
    w.silent = chance(0.5) ? 0.5 * draw() : 0;
    w.away = chance(0.3) ? 0.3 * draw() : 0;
    w.fails = chance(0.3) ? draw() : 0;
    int count = 1 + (int)(draw() * NODES_MAX);
    w.host = (int)(draw() * count);
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        list[i] = (struct nodes_node){ .name = names[i], .allocated = true };
        list[i].excluded = chance(0.1);
        doubts[i] = list[i].excluded ? 2 : 0;
    }
    struct nodes nodes = { .list = list, .count = count };
    nodes.host = names[w.host];
    nodes.wanted = 1 + (int)(draw() * count);
    nodes.wanted_min = 1 + (int)(draw() * nodes.wanted);
    for (int number = 0; number < 4; number++) {
        check_once(&nodes, number);
        for (int i = 0; i < count; i++)
            list[i].allocated = list[i].allocated && !list[i].given;
    }
}

int main(int argc, char **argv)
{
    return histories_main(argc, argv, history, &violations);
}
