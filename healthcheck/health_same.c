/* One row of each rank goes to all, some hundred bytes; what follows is the same
 * arithmetic on every rank. Of ranks that share a node the first speaks for it.
 *
 * Of each kind of version the nodes are put in order, so that equal ones lie beside
 * each other, and the longest stretch is what most have. Where two are as long
 * nobody is the minority, and both are told. A memory that is a GiB larger or smaller
 * is the same, since a kernel keeps some for itself and sizes lie at any place between
 * two whole numbers.
 *
 * A clock is what a node's wall clock shows at one moment of rank 0's steady one,
 * which comm_offset() finds by messages, within half of their time. The median is a
 * node's own, so that of two nodes one is named and not none. */
#include "healthcheck/health_same.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/clock.h"
#include "src/base/new.h"
#include "src/base/timeline.h"

#define SAME_AHEAD_MS 10000.0 /* injected */
#define SAME_TRIES 8
#define SAME_TEXT_BYTES 512

struct same_row {
    struct health_versions versions;
    double clock_ms, error_ms;
};

struct same_node {
    const char *host;
    struct same_row *row;
    enum health_state state;
    const char *code;
    char text[SAME_TEXT_BYTES];
};

struct health_same {
    int count; /* of nodes */
    char (*hosts)[64];
    struct same_row *rows;   /* of ranks */
    struct same_node *nodes; /* in order of their names */
};

#define say(node, code_, ...)                                                  \
    do {                                                                       \
        if ((node)->text[0] == '\0')                                           \
            (node)->code = (code_);                                            \
        (node)->state = HEALTH_WARN;                                           \
        clean_join((node)->text, sizeof(node)->text, ", ", __VA_ARGS__);       \
    } while (0)

/* --- versions --- */

static int compare_text(const void *a, const void *b, void *kind)
{
    const struct same_node *one = *(struct same_node *const *)a;
    const struct same_node *other = *(struct same_node *const *)b;
    int order = strverscmp(one->row->versions.of[*(int *)kind],
                           other->row->versions.of[*(int *)kind]);
    return order != 0 ? order : strcmp(one->host, other->host);
}

/* What lies within a GiB of the median is written as that. */
static void round_memory(struct same_node **order, int count)
{
    const char *middle =
        order[count / 2]->row->versions.of[HEALTH_VERSION_memory];
    double median = strtod(middle, NULL);
    for (int i = 0; i < count; i++) {
        char *text = order[i]->row->versions.of[HEALTH_VERSION_memory];
        if (text != middle && fabs(strtod(text, NULL) - median) < 1.5)
            snprintf(text, HEALTH_VERSION_BYTES, "%s", middle);
    }
}

static const char *name_of(const char *text)
{
    return text[0] != '\0' ? text : "none";
}

/* Nodes first to end have another version than most: "kernel 6.1.0-18 on n3 and 1 more,
 * 6.1.0-17 on 62". */
static void tell_stretch(struct same_node **order, int first, int end, int kind,
                         const char *most, int most_count)
{
    const char *text = name_of(order[first]->row->versions.of[kind]);
    for (int i = first; i < end; i++) {
        char others[32] = "";
        if (end - first > 1)
            snprintf(others, sizeof others, " and %d more", end - first - 1);
        say(order[i], "DIFFERS", "%s %s on %s%s, %s on %d",
            health_version_names[kind], text, order[i]->host, others,
            name_of(most), most_count);
    }
}

/* The end of the stretch of equal ones that begins there. */
static int stretch_end(struct same_node **order, int count, int first, int kind)
{
    int end = first;
    while (end < count && strcmp(order[end]->row->versions.of[kind],
                                 order[first]->row->versions.of[kind]) == 0)
        end++;
    return end;
}

static void judge_version(struct same_node **order, int count, int kind)
{
    int best = 0, equal = -1, most = 0, end;
    qsort_r(order, (size_t)count, sizeof(*order), compare_text, &kind);
    if (kind == HEALTH_VERSION_memory) {
        round_memory(order, count);
        qsort_r(order, (size_t)count, sizeof(*order), compare_text, &kind);
    }
    for (int i = 0; i < count; i = end) {
        end = stretch_end(order, count, i, kind);
        if (end - i == most)
            equal = i;
        if (end - i <= most)
            continue;
        best = i;
        most = end - i;
        equal = -1;
    }
    for (int i = 0; i < count; i = end) {
        int other = i == best ? equal : best;
        end = stretch_end(order, count, i, kind);
        if (other >= 0)
            tell_stretch(order, i, end, kind,
                         order[other]->row->versions.of[kind], most);
    }
}

/* --- clocks --- */

static int compare_clock(const void *a, const void *b)
{
    double one = (*(struct same_node *const *)a)->row->clock_ms;
    double other = (*(struct same_node *const *)b)->row->clock_ms;
    return (one > other) - (one < other);
}

static void judge_clocks(struct same_node **order, int count, double max_ms)
{
    qsort(order, (size_t)count, sizeof(*order), compare_clock);
    const struct same_row *median = order[(count - 1) / 2]->row;
    for (int i = 0; i < count && max_ms > 0; i++) {
        double skew_ms = order[i]->row->clock_ms - median->clock_ms;
        double error_ms = order[i]->row->error_ms + median->error_ms;
        if (fabs(skew_ms) - error_ms > max_ms)
            say(order[i], "CLOCK_SKEW", "clock %.0fms/%.0f %s the median of %d",
                fabs(skew_ms), max_ms, skew_ms > 0 ? "ahead of" : "behind",
                count);
    }
}

/* --- all --- */

static enum err same_create(struct comm *comm, struct health_same **out)
{
    size_t size = (size_t)comm_size(comm);
    TRY(new_zeroed(out, 1));
    TRY(new_zeroed(&(*out)->rows, size));
    TRY(new_zeroed(&(*out)->hosts, size));
    TRY(new_zeroed(&(*out)->nodes, size));
    for (size_t i = 0; i < size; i++) {
        snprintf((*out)->hosts[i], sizeof(*out)->hosts[i], "%s",
                 comm_host(comm, (int)i));
        (*out)->nodes[i] = (struct same_node){ .host = (*out)->hosts[i],
                                               .row = &(*out)->rows[i] };
    }
    return ERR_OK;
}

void health_same_destroy(struct health_same *same)
{
    if (same == NULL)
        return;
    free(same->rows);
    free(same->hosts);
    free(same->nodes);
    free(same);
}

static int compare_host(const void *a, const void *b)
{
    const struct same_node *one = a, *other = b;
    int order = strcmp(one->host, other->host);
    return order != 0 ? order
                      : (one->row > other->row) - (one->row < other->row);
}

static enum err same_judge(struct health_same *same, int size, double max_ms)
{
    struct same_node **order;
    int known = 0;
    qsort(same->nodes, (size_t)size, sizeof *same->nodes, compare_host);
    for (int i = 0; i < size; i++)
        if (same->count == 0 ||
            strcmp(same->nodes[same->count - 1].host, same->nodes[i].host) != 0)
            same->nodes[same->count++] = same->nodes[i];
    TRY(new_zeroed(&order, (size_t)same->count));
    /* every node has a kernel: without one it could not be asked */
    for (int i = 0; i < same->count; i++)
        if (same->nodes[i].row->versions.of[HEALTH_VERSION_kernel][0] != '\0')
            order[known++] = &same->nodes[i];
    for (int kind = 0; kind < HEALTH_VERSION_COUNT && known > 0; kind++)
        judge_version(order, known, kind);
    for (int i = 0; i < same->count; i++)
        order[i] = &same->nodes[i];
    judge_clocks(order, same->count, max_ms);
    free(order);
    return ERR_OK;
}

/* Between two looks at the steady clock, which are the closer together the less the
 * processor was somebody else's; the closest of some count. */
static void read_clock(struct same_row *row, double offset_ms, double error_ms)
{
    double best_ms = INFINITY;
    for (int i = 0; i < SAME_TRIES; i++) {
        double before_ms = (double)timeline_now() / 1e6;
        double wall_ms = clock_wall() * 1e3;
        double half_ms = ((double)timeline_now() / 1e6 - before_ms) / 2;
        if (half_ms >= best_ms)
            continue;
        best_ms = half_ms;
        row->clock_ms = wall_ms - (before_ms + half_ms + offset_ms);
    }
    row->error_ms = error_ms + best_ms;
}

enum err health_same_run(struct comm *comm, const struct health_versions *own,
                         double skew_max_ms, const char *inject,
                         struct health_same **out)
{
    enum err rc = ERR_OK;
    int64_t offset_ns, error_ns;
    int rank = comm_rank(comm), size = comm_size(comm);
    struct health_same *same = NULL;
    *out = NULL;
    TRY_OUT(comm_agree(comm, same_create(comm, &same)));
    TRY_OUT(comm_offset(comm, &offset_ns, &error_ns));
    struct same_row *row = &same->rows[rank];
    row->versions = *own;
    read_clock(row, (double)offset_ns / 1e6, (double)error_ns / 1e6);
    if (health_injected(inject, "clock", comm_host(comm, rank), "ahead"))
        row->clock_ms += SAME_AHEAD_MS;
    TRY_OUT(comm_gather_rows(comm, same->rows, sizeof *same->rows));
    TRY_OUT(comm_agree(comm, same_judge(same, size, skew_max_ms)));
out:
    return new_or_none(rc, same, out, health_same_destroy);
}

enum health_state health_same_state(const struct health_same *same)
{
    enum health_state state = HEALTH_OK;
    for (int i = 0; i < same->count; i++)
        state = health_worse(state, same->nodes[i].state);
    return state;
}

static void reason_of(const struct same_node *node, char *reason, size_t size)
{
    snprintf(reason, size, HEALTH_PREFIX "%s %s", node->code, node->text);
    health_report_clean(reason);
}

static int compare_name(const void *name, const void *node)
{
    return strcmp(name, ((const struct same_node *)node)->host);
}

void health_same_tell(const struct health_same *same, json_t *verdicts)
{
    char reason[SAME_TEXT_BYTES + 64];
    json_t *verdict;
    size_t i;
    json_array_foreach(verdicts, i, verdict)
    {
        const char *host = json_string_value(json_object_get(verdict, "host"));
        const char *state =
            json_string_value(json_object_get(verdict, "verdict"));
        const struct same_node *node =
            bsearch(host, same->nodes, (size_t)same->count, sizeof *same->nodes,
                    compare_name);
        if (node == NULL || node->state == HEALTH_OK ||
            strcmp(state, health_state_name(HEALTH_OK)) != 0)
            continue;
        reason_of(node, reason, sizeof reason);
        json_object_set_new(verdict, "verdict",
                            json_string(health_state_name(node->state)));
        json_object_set_new(verdict, "code", json_string(node->code));
        json_object_set_new(verdict, "reason", json_string(reason));
    }
}

void health_same_print(const struct health_same *same, FILE *file)
{
    for (int i = 0; i < same->count; i++)
        if (same->nodes[i].state != HEALTH_OK)
            fprintf(file, "%s: %s: %s %s\n", same->nodes[i].host,
                    health_state_name(same->nodes[i].state),
                    same->nodes[i].code, same->nodes[i].text);
}
