/* Seeded histories of a cluster that drains itself: sick nodes, slow and failing
 * answers, robots that undrain, nodes that others take out of service. Each node
 * that is found bad walks drain.h's way; time, Slurm and the other nodes are
 * simulated. A history is one number, and what it breaks is printed with it:
 *
 *     test_drain_histories               3,000 of them, as a test
 *     test_drain_histories COUNT         make simulate SEEDS=COUNT
 *     test_drain_histories --seed N      make simulate SEED=N: one, step by step
 *
 * What must hold in each:
 *   floor    when a drain is done, nothing else was drained since its nodes were
 *            counted, and by that count one more was allowed everywhere
 *   foreign  a node that somebody else had taken out when it was counted stays
 *   latch    no drain for a code that was latched when its marks were read
 *   storm    within any window no more drains for a code than the limit
 *   line     every request ends with exactly one decision in the log
 *   end      every request ends, in time and without the lock */
#include <assert.h>

#include "src/base/rng.h"
#include "src/control/drain.h"
#include "tests/histories.h"

enum {
    NODES_MAX = 1000,
    AGENTS_MAX = 512,
    PARTS = 6,
    CODES = 3,
    EVENTS = 8192
};
enum { BEGIN, GO_ON, LATE_UPDATE, THAW }; /* kinds of an agent's events */
enum owner { IN_SERVICE, OURS, FOREIGN };

struct agent {
    struct drain drain;
    struct drain_action action;
    int node, code, said, steps;
    double begin_s;
    bool ended;
    struct drain_event heard; /* before it stood still */
    double frozen_s;
    /* what it was told when nodes were counted and marks read */
    int drains_then;
    bool allowed, foreign_then, latched_then;
};

struct event {
    double time;
    int agent; /* < 0: something in the world, see world_event */
    int kind;
};

struct mark {
    double time;
    int code, node;
};

static struct world {
    uint64_t seed, draws;
    double now;
    int nodes, parts;
    enum owner owner[NODES_MAX];
    int first[PARTS], end[PARTS]; /* a partition is an interval of nodes */
    struct agent agents[AGENTS_MAX];
    int agent_count;
    struct event heap[EVENTS];
    int heap_count;
    double lock_until, lock_begin, refused_until[1 + PARTS];
    bool latched[CODES];
    struct mark marks[4096], done[4096];
    int mark_count, done_count, drains;
    double slow, silent, failing, freezing; /* of answers: mean s; shares */
    int percent, storm_nodes;
    double storm_s;
    int violations;
    bool verbose;
} w;

static double draw(void)
{
    return rng_uniform(w.seed, 1, w.draws++);
}

static int below(int n)
{
    return (int)(draw() * n) % n;
}

static void broken(const struct agent *a, const char *what)
{
    if (w.violations++ < 20)
        printf("seed %llu: %s broken at %.1f s by node %d, code %d\n",
               (unsigned long long)w.seed, what, w.now, a->node, a->code);
}

static void later(double delay, int agent, int kind)
{
    assert(w.heap_count < EVENTS);
    struct event event = { w.now + delay, agent, kind };
    int i = w.heap_count++;
    for (; i > 0 && w.heap[(i - 1) / 2].time > event.time; i = (i - 1) / 2)
        w.heap[i] = w.heap[(i - 1) / 2];
    w.heap[i] = event;
}

static struct event next_event(void)
{
    struct event top = w.heap[0], last = w.heap[--w.heap_count];
    int i = 0;
    for (int child; (child = 2 * i + 1) < w.heap_count; i = child) {
        if (child + 1 < w.heap_count &&
            w.heap[child + 1].time < w.heap[child].time)
            child++;
        if (w.heap[child].time >= last.time)
            break;
        w.heap[i] = w.heap[child];
    }
    w.heap[i] = last;
    return top;
}

/* --- the simulated Slurm --- */

static bool in_part(int node, int part)
{
    return node >= w.first[part] && node < w.end[part];
}

static void count_shares(int node, struct cluster_shares *out)
{
    *out = (struct cluster_shares){ .count = 1 };
    snprintf(out->list[0].name, CLUSTER_NAME_BYTES, CLUSTER_EVERYWHERE);
    out->list[0].nodes = w.nodes;
    for (int i = 0; i < w.nodes; i++)
        out->list[0].out += w.owner[i] != IN_SERVICE;
    for (int p = 0; p < w.parts; p++) {
        if (!in_part(node, p))
            continue;
        struct cluster_share *share = &out->list[out->count++];
        snprintf(share->name, sizeof share->name, "p%d", p);
        share->nodes = w.end[p] - w.first[p];
        for (int i = w.first[p]; i < w.end[p]; i++)
            share->out += w.owner[i] != IN_SERVICE;
    }
    out->here_out = w.owner[node] != IN_SERVICE;
}

static void list_marks(struct cluster_marks *out)
{
    out->locked = w.now < w.lock_until;
    out->lock_time = out->locked ? w.lock_begin : 0;
    out->drained_count = out->latched_count = out->refused_count = 0;
    for (int i = 0; i < w.mark_count && out->drained_count < CLUSTER_MARKS_MAX;
         i++) {
        struct cluster_drained *drained = &out->drained[out->drained_count++];
        drained->time = w.marks[i].time;
        snprintf(drained->code, sizeof drained->code, "CODE_%d",
                 w.marks[i].code);
        snprintf(drained->mark, sizeof drained->mark, "%s%d", CLUSTER_DRAINED,
                 i);
    }
    for (int c = 0; c < CODES; c++)
        if (w.latched[c])
            snprintf(out->latched[out->latched_count++], CLUSTER_NAME_BYTES,
                     "CODE_%d", c);
    for (int p = 0; p <= w.parts; p++)
        if (w.now < w.refused_until[p])
            snprintf(out->refused[out->refused_count++], CLUSTER_NAME_BYTES,
                     p == w.parts ? CLUSTER_EVERYWHERE : "p%d", p);
}

static void tell_node(int node, struct cluster_node *out)
{
    *out = (struct cluster_node){ .out = w.owner[node] != IN_SERVICE };
    snprintf(out->state, sizeof out->state, out->out ? "IDLE+DRAIN" : "IDLE");
    for (int p = 0; p < w.parts; p++)
        if (in_part(node, p))
            snprintf(out->partitions[out->partition_count++],
                     CLUSTER_NAME_BYTES, "p%d", p);
}

/* A drain takes place, with its answer or after it. */
static void do_update(struct agent *a)
{
    int same = 0;
    if (w.drains != a->drains_then || !a->allowed)
        broken(a, "floor");
    if (a->foreign_then)
        broken(a, "foreign");
    if (a->latched_then)
        broken(a, "latch");
    if (w.owner[a->node] == IN_SERVICE)
        w.owner[a->node] = OURS;
    w.drains++;
    w.done[w.done_count++] = (struct mark){ a->drain.time, a->code, a->node };
    for (int i = 0; i < w.done_count; i++)
        same += w.done[i].code == a->code &&
                w.done[i].time >= a->drain.time - w.storm_s;
    if (w.storm_nodes > 0 && same > w.storm_nodes)
        broken(a, "storm");
}

static bool do_mark(struct agent *a, const char *name)
{
    int c = 0;
    if (sscanf(name, CLUSTER_LATCHED "CODE_%d", &c) == 1) {
        w.latched[c] = true;
    } else if (strncmp(name, CLUSTER_REFUSED, strlen(CLUSTER_REFUSED)) == 0) {
        int p = w.parts;
        sscanf(name, CLUSTER_REFUSED "p%d", &p);
        w.refused_until[p] = w.now + 60;
    } else {
        w.marks[w.mark_count++] = (struct mark){ w.now, a->code, a->node };
    }
    return true;
}

static bool do_remove(const char *name)
{
    int i = 0;
    if (strcmp(name, CLUSTER_LOCK) == 0) {
        w.lock_until = 0;
    } else if (sscanf(name, CLUSTER_DRAINED "%d", &i) == 1 &&
               i < w.mark_count) {
        w.marks[i] = w.marks[--w.mark_count];
    }
    return true;
}

static bool do_lock(void)
{
    if (w.now < w.lock_until)
        return false;
    w.lock_begin = w.now;
    w.lock_until = w.now + 60;
    return true;
}

static struct cluster_marks marks;
static struct cluster_shares shares;
static struct cluster_node node;

/* What Slurm does, and what of it the agent hears. */
static void serve(struct agent *a, struct drain_event *event, bool answers,
                  bool fails)
{
    bool done = false;
    switch (a->action.what) {
    case DRAIN_NODE:
        tell_node(a->node, &node);
        event->node = answers && !fails ? &node : NULL;
        return;
    case DRAIN_MARKS:
        list_marks(&marks);
        a->latched_then = w.latched[a->code];
        event->marks = answers && !fails ? &marks : NULL;
        return;
    case DRAIN_SHARES:
        count_shares(a->node, &shares);
        a->drains_then = w.drains;
        a->foreign_then = w.owner[a->node] == FOREIGN;
        a->allowed = true;
        for (int i = 0; i < shares.count; i++) {
            int most = shares.list[i].nodes * w.percent / 100;
            a->allowed &= shares.list[i].out < (most > 1 ? most : 1);
        }
        event->shares = answers && !fails ? &shares : NULL;
        return;
    case DRAIN_LOCK:
        done = !fails && do_lock();
        break;
    case DRAIN_MARK:
    case DRAIN_MARK_NOW:
        done = !fails && do_mark(a, a->action.text);
        break;
    case DRAIN_REMOVE:
        done = !fails && do_remove(a->action.text);
        break;
    case DRAIN_UPDATE:
        done = !fails;
        if (done)
            do_update(a);
        break;
    default:
        return;
    }
    event->done = answers && done;
}

/* What an agent has heard; it goes on with that. */
static void go_on(int index, struct drain_event *event)
{
    struct agent *a = &w.agents[index];
    event->now_s = w.now;
    a->action = drain_next(&a->drain, event);
    if (w.verbose)
        printf("%8.2f n%d %d %s\n", w.now, a->node, (int)a->action.what,
               a->action.text);
    a->said += a->action.what == DRAIN_SAY;
    if (++a->steps > 100 || w.now > a->begin_s + 45 + 30 + a->frozen_s)
        broken(a, "end");
    if (a->action.what == DRAIN_END || a->steps > 100) {
        a->ended = true;
        if (a->said != 1)
            broken(a, "line");
        return;
    }
    double delay = w.slow * (draw() > 0.9 ? 3 : 0.3) * draw();
    delay = a->action.what == DRAIN_PAUSE ? a->action.seconds
            : a->action.what == DRAIN_SAY ? 0.01
                                          : 0.01 + delay;
    later(delay > 5 ? 5 : delay, index, GO_ON);
}

static void begin(int index)
{
    static char texts[AGENTS_MAX][64], names[AGENTS_MAX][32];
    struct agent *a = &w.agents[index];
    struct drain_event event = { .answered = true };
    snprintf(names[index], sizeof names[index], "n%d", a->node);
    snprintf(texts[index], sizeof texts[index], "CODE_%d wrong", a->code);
    struct drain_request request = { .node = names[index],
                                     .reason = texts[index],
                                     .enforce = true,
                                     .percent = w.percent,
                                     .storm_nodes = w.storm_nodes,
                                     .storm_s = w.storm_s,
                                     .end_s = w.now + 45,
                                     .seed = w.seed * 4099 + (uint64_t)index };
    drain_begin(&a->drain, &request);
    a->begin_s = w.now;
    go_on(index, &event);
}

/* The answer to an agent's action is there, or is not coming. */
static void answer(int index)
{
    struct agent *a = &w.agents[index];
    bool local = a->action.what == DRAIN_SAY || a->action.what == DRAIN_PAUSE;
    struct drain_event event = { .answered = local || draw() >= w.silent };
    if (!event.answered && a->action.what == DRAIN_UPDATE)
        later(draw() * 30, index, LATE_UPDATE);
    else if (!local && (event.answered || draw() < 0.5))
        serve(a, &event, event.answered, draw() < w.failing);
    /* a machine may stand still before it hears that something is done */
    if (event.node == NULL && event.marks == NULL && event.shares == NULL &&
        draw() < w.freezing) {
        a->heard = event;
        double still_s = draw() * 90;
        a->frozen_s += still_s;
        later(still_s, index, THAW);
        return;
    }
    go_on(index, &event);
}

static void step(const struct event *event)
{
    struct agent *a = &w.agents[event->agent];
    if (event->kind == BEGIN)
        begin(event->agent);
    else if (event->kind == GO_ON)
        answer(event->agent);
    else if (event->kind == LATE_UPDATE)
        do_update(a);
    else
        go_on(event->agent, &a->heard);
}

/* --- the world --- */

enum { SICK, UNDRAIN, TAKE_OUT, RESET };

static void world_event(int kind)
{
    int n = below(w.nodes);
    if (w.agent_count > 0 && draw() < 0.7)
        n = w.agents[w.agent_count - 1].node;
    if (kind == SICK && w.agent_count < AGENTS_MAX) {
        int most = 1 + below(draw() < 0.2 ? 60 : 6), code = below(CODES);
        int first = below(w.nodes);
        for (int i = 0; i < most && w.agent_count < AGENTS_MAX; i++) {
            struct agent *a = &w.agents[w.agent_count];
            *a = (struct agent){ .node = (first + i) % w.nodes, .code = code };
            later(draw() * 10, w.agent_count++, BEGIN);
        }
    } else if (kind == UNDRAIN) {
        for (int i = 0; i < w.nodes; i++)
            if (w.owner[i] == OURS && draw() < 0.5)
                w.owner[i] = IN_SERVICE;
    } else if (kind == TAKE_OUT) {
        for (int i = below(5); i >= 0; i--)
            if (w.owner[(n + i) % w.nodes] == IN_SERVICE)
                w.owner[(n + i) % w.nodes] = FOREIGN;
    } else if (kind == RESET) {
        w.latched[below(CODES)] = false;
    }
}

static void history(uint64_t seed, bool verbose)
{
    int violations = w.violations;
    w = (struct world){ .seed = seed, .verbose = verbose };
    w.violations = violations;
    w.nodes = draw() < 0.3 ? 4 + below(60) : NODES_MAX;
    w.parts = 1 + below(PARTS);
    for (int p = 0; p < w.parts; p++) {
        w.first[p] = p == 0 ? 0 : below(w.nodes);
        w.end[p] =
            p == 0 ? w.nodes : w.first[p] + 1 + below(w.nodes - w.first[p]);
    }
    w.slow = draw() < 0.5 ? 0.1 : 3 * draw();
    w.silent = draw() < 0.5 ? 0 : 0.2 * draw();
    w.failing = draw() < 0.5 ? 0 : 0.2 * draw();
    w.freezing = draw() < 0.7 ? 0 : 0.1 * draw();
    w.percent = 1 + below(30);
    w.storm_nodes = below(10);
    w.storm_s = 60 + 600 * draw();
    for (int i = 0, n = 1 + below(6); i < n; i++)
        later(draw() * 300, -1, SICK);
    for (int i = 0, n = below(12); i < n; i++)
        later(draw() * 400, -1, 1 + below(3));
    while (w.heap_count > 0) {
        struct event event = next_event();
        w.now = event.time;
        if (event.agent < 0)
            world_event(event.kind);
        else
            step(&event);
    }
    for (int i = 0; i < w.agent_count; i++)
        if (!w.agents[i].ended)
            broken(&w.agents[i], "end");
}

int main(int argc, char **argv)
{
    return histories_main(argc, argv, history, &w.violations);
}
