/* Slurm's words are fields "NAME=VALUE" between blanks, of which a reason, the
 * last one, may itself have blanks; sinfo's are cut at bars. What cannot be
 * read is not known, which is an error, never a state: a node is drained for
 * what is known alone. */
#include "src/control/cluster.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/array.h"
#include "src/base/map.h"

/* Where the value of a field begins, within one line; NULL: not there. */
static const char *field_at(const char *line, const char *name)
{
    size_t bytes = strlen(name), end = strcspn(line, "\n");
    for (const char *at = line; at < line + end;) {
        if (strncmp(at, name, bytes) == 0 && at[bytes] == '=')
            return at + bytes + 1;
        at += strcspn(at, " \n");
        at += strspn(at, " ");
    }
    return NULL;
}

static void copy_to(char *to, size_t size, const char *from, size_t bytes)
{
    assert(size > 0);
    snprintf(to, size, "%.*s", (int)bytes, from);
}

/* A state's words have + between them. POWER_DOWN and its kind take no node out
 * of service; a base state may end with *, of a node that does not answer. */
static bool state_is_out(const char *state)
{
    static const char *const out[] = { "DOWN", "DRAIN", "FAIL", "ERROR" };
    for (const char *word = state; *word != '\0';) {
        for (size_t i = 0; i < sizeof out / sizeof *out; i++)
            if (strncasecmp(word, out[i], strlen(out[i])) == 0)
                return true;
        word += strcspn(word, "+");
        word += *word == '+';
    }
    return false;
}

enum err cluster_node_parse(const char *text, struct cluster_node *out)
{
    *out = (struct cluster_node){ 0 };
    const char *state = field_at(text, "State");
    if (state == NULL)
        return err_set(ERR_DATA, "no state in '%.100s'", text);
    copy_to(out->state, sizeof out->state, state, strcspn(state, " \n"));
    out->out = state_is_out(out->state);
    const char *list = field_at(text, "Partitions");
    while (list != NULL && out->partition_count < CLUSTER_SHARES_MAX) {
        size_t bytes = strcspn(list, ", \n");
        if (bytes > 0)
            copy_to(out->partitions[out->partition_count++], CLUSTER_NAME_BYTES,
                    list, bytes);
        list = list[bytes] == ',' ? list + bytes + 1 : NULL;
    }
    const char *reason = field_at(text, "Reason");
    if (reason != NULL) {
        size_t bytes = strcspn(reason, "\n");
        for (size_t i = bytes; i > 1; i--) /* who and when: " [root@...]" */
            if (strncmp(reason + i - 2, " [", 2) == 0) {
                bytes = i - 2;
                break;
            }
        copy_to(out->reason, sizeof out->reason, reason, bytes);
    }
    return ERR_OK;
}

/* sinfo's word for a state: what follows the letters are signs, of which * is
 * no answer. A node in a reservation for maintenance serves nobody either. */
static bool word_is_out(const char *word, size_t bytes)
{
    static const char *const out[] = { "down",  "drain", "fail",
                                       "error", "unk",   "maint" };
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        if (strncasecmp(word, out[i], strlen(out[i])) == 0)
            return true;
    return memchr(word, '*', bytes) != NULL;
}

static struct cluster_share *share_of(struct cluster_shares *shares,
                                      const char *name, size_t bytes)
{
    for (int i = 1; i < shares->count; i++)
        if (strlen(shares->list[i].name) == bytes &&
            memcmp(shares->list[i].name, name, bytes) == 0)
            return &shares->list[i];
    return NULL;
}

struct named {
    const char *text;
    size_t bytes;
};

/* Whether a line has told of this node already. */
static enum err seen_before(struct map *map, struct named **names,
                            size_t *capacity, struct named name, bool *seen)
{
    uint32_t hash = map_hash_bytes(name.text, name.bytes);
    *seen = false;
    for (size_t at = 0, i; map_next(map, hash, &at, &i);)
        if ((*names)[i].bytes == name.bytes &&
            memcmp((*names)[i].text, name.text, name.bytes) == 0)
            *seen = true;
    if (*seen)
        return ERR_OK;
    size_t number = map->count;
    TRY(array_room(names, capacity, number + 1));
    (*names)[number] = name;
    return map_add(map, hash, number);
}

static enum err count_line(const char *line, struct map *map,
                           struct named **names, size_t *capacity,
                           struct cluster_shares *out)
{
    size_t bytes = strcspn(line, "|\n");
    const char *state = line + bytes + 1;
    if (bytes == 0 || line[bytes] != '|')
        return err_set(ERR_DATA, "not a line of sinfo: '%.100s'", line);
    size_t state_bytes = strcspn(state, "|\n");
    if (state_bytes == 0 || state[state_bytes] != '|')
        return err_set(ERR_DATA, "not a line of sinfo: '%.100s'", line);
    if (strncasecmp(state, "future", 6) == 0)
        return ERR_OK;
    const char *partition = state + state_bytes + 1;
    bool seen = false, is_out = word_is_out(state, state_bytes);
    TRY(seen_before(map, names, capacity, (struct named){ line, bytes },
                    &seen));
    struct cluster_share *share =
        share_of(out, partition, strcspn(partition, "\n"));
    if (share != NULL) {
        share->nodes++;
        share->out += is_out;
    }
    if (!seen) {
        out->list[0].nodes++;
        out->list[0].out += is_out;
    }
    return ERR_OK;
}

enum err cluster_shares_parse(const char *text, const struct cluster_node *node,
                              const char *name, struct cluster_shares *out)
{
    enum err rc = ERR_OK;
    struct map map = { 0 };
    struct named *names = NULL;
    size_t capacity = 0;
    bool here = false;
    *out = (struct cluster_shares){ .count = 1 };
    snprintf(out->list[0].name, CLUSTER_NAME_BYTES, CLUSTER_EVERYWHERE);
    for (int i = 0; i < node->partition_count; i++)
        memcpy(out->list[out->count++].name, node->partitions[i],
               CLUSTER_NAME_BYTES);
    for (const char *line = text; *line != '\0';) {
        size_t bytes = strcspn(line, "\n");
        if (bytes > 0)
            TRY_OUT(count_line(line, &map, &names, &capacity, out));
        if (strncmp(line, name, strlen(name)) == 0 &&
            line[strlen(name)] == '|') {
            const char *state = line + strlen(name) + 1;
            here = true;
            out->here_out |= word_is_out(state, strcspn(state, "|"));
        }
        line += bytes + (line[bytes] == '\n');
    }
    if (!here)
        rc = err_set(ERR_DATA, "%s is not among the %d nodes of sinfo", name,
                     out->list[0].nodes);
out:
    map_free(&map);
    free(names);
    return rc;
}

/* --- marks --- */

/* "2026-11-25T00:18:28" in UTC; 0: none. */
static double time_of(const char *text)
{
    struct tm tm = { 0 };
    const char *end = text == NULL ? NULL : strptime(text, "%FT%T", &tm);
    return end == NULL ? 0 : (double)timegm(&tm);
}

/* What follows the prefix in a name that is delimited by a blank; NULL. */
static const char *after(const char *name, const char *prefix)
{
    size_t bytes = strlen(prefix);
    return strncmp(name, prefix, bytes) == 0 ? name + bytes : NULL;
}

/* TIME.CODE.NODE */
static void add_drained(const char *name, const char *rest,
                        struct cluster_marks *out)
{
    char *end = NULL;
    double time = (double)strtoll(rest, &end, 10);
    if (out->drained_count >= CLUSTER_MARKS_MAX || end == rest || *end != '.')
        return;
    struct cluster_drained *drained = &out->drained[out->drained_count++];
    *drained = (struct cluster_drained){ .time = time };
    copy_to(drained->code, sizeof drained->code, end + 1,
            strcspn(end + 1, ". \n"));
    copy_to(drained->mark, sizeof drained->mark, name, strcspn(name, " \n"));
}

static void add_mark(const char *line, struct cluster_marks *out)
{
    const char *name = field_at(line, "ReservationName"), *rest;
    if (name == NULL)
        return;
    if ((rest = after(name, CLUSTER_LOCK " ")) != NULL) {
        out->locked = true;
        out->lock_time = time_of(field_at(line, "StartTime"));
    } else if ((rest = after(name, CLUSTER_DRAINED)) != NULL) {
        add_drained(name, rest, out);
    } else if ((rest = after(name, CLUSTER_LATCHED)) != NULL &&
               out->latched_count < CLUSTER_MARKS_MAX) {
        copy_to(out->latched[out->latched_count++], CLUSTER_NAME_BYTES, rest,
                strcspn(rest, " \n"));
    } else if ((rest = after(name, CLUSTER_REFUSED)) != NULL &&
               out->refused_count < CLUSTER_SHARES_MAX) {
        copy_to(out->refused[out->refused_count++], CLUSTER_NAME_BYTES, rest,
                strcspn(rest, " \n"));
    }
}

enum err cluster_marks_parse(const char *text, struct cluster_marks *out)
{
    memset(out, 0, sizeof *out);
    if (strncmp(text, "ReservationName=", 16) != 0 &&
        strstr(text, "No reservations") == NULL)
        return err_set(ERR_DATA, "no list of reservations: '%.100s'", text);
    for (const char *line = text; *line != '\0';) {
        add_mark(line, out);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return ERR_OK;
}
