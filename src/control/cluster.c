/* sinfo's fields are cut at bars, of which the last one may itself have some;
 * scontrol's are "NAME=VALUE" between blanks. What cannot be
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

/* sinfo's word for a state; what follows the letters are signs. Power that is
 * down or coming is nothing that takes a node out of service. */
static bool word_is_out(const char *word)
{
    static const char *const out[] = { "down", "drain", "fail", "error" };
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        if (strncasecmp(word, out[i], strlen(out[i])) == 0)
            return true;
    return false;
}

/* The fields of a line of sinfo: where each begins, and its bytes; the last one
 * goes to the line's end. ERR_DATA: there are fewer. */
struct field {
    const char *text;
    size_t bytes;
};

static enum err cut_line(const char *line, int count, struct field *fields)
{
    assert(count >= 1);
    const char *at = line;
    for (int i = 0; i < count; i++) {
        fields[i].text = at;
        fields[i].bytes = strcspn(at, i + 1 < count ? "|\n" : "\n");
        at += fields[i].bytes;
        if (fields[i].bytes == 0 || (i + 1 < count && *at++ != '|'))
            return err_set(ERR_DATA, "not a line of sinfo: '%.*s'",
                           (int)strcspn(line, "\n"), line);
    }
    return ERR_OK;
}

static bool field_is(struct field field, const char *text)
{
    return strlen(text) == field.bytes &&
           memcmp(field.text, text, field.bytes) == 0;
}

/* The line after this one; NULL: there is none. */
static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return *line == '\0' || line[1] == '\0' ? NULL : line + 1;
}

enum err cluster_node_parse(const char *text, const char *name,
                            struct cluster_node *out)
{
    struct field fields[4];
    *out = (struct cluster_node){ 0 };
    for (const char *line = text; line != NULL; line = next_line(line)) {
        TRY(cut_line(line, 4, fields));
        if (!field_is(fields[0], name))
            return err_set(ERR_DATA, "no line of node %s: '%.100s'", name,
                           line);
        copy_to(out->state, sizeof out->state, fields[1].text, fields[1].bytes);
        copy_to(out->reason, sizeof out->reason, fields[3].text,
                fields[3].bytes);
        if (out->partition_count < CLUSTER_SHARES_MAX)
            copy_to(out->partitions[out->partition_count++], CLUSTER_NAME_BYTES,
                    fields[2].text, fields[2].bytes);
    }
    out->out = word_is_out(out->state);
    return ERR_OK;
}

/* Among others what may be out counts as well: * is no answer, and a node in a
 * reservation for maintenance serves nobody. */
static bool counts_as_out(struct field state)
{
    return word_is_out(state.text) || strncasecmp(state.text, "unk", 3) == 0 ||
           strncasecmp(state.text, "maint", 5) == 0 ||
           memchr(state.text, '*', state.bytes) != NULL;
}

static struct cluster_share *share_of(struct cluster_shares *shares,
                                      struct field name)
{
    for (int i = 1; i < shares->count; i++)
        if (field_is(name, shares->list[i].name))
            return &shares->list[i];
    return NULL;
}

/* Nodes that lines have told of already. */
struct seen {
    struct map map;
    struct field *names;
    size_t capacity;
};

static enum err see(struct seen *seen, struct field name, bool *before)
{
    uint32_t hash = map_hash_bytes(name.text, name.bytes);
    for (size_t at = 0, i; map_next(&seen->map, hash, &at, &i);)
        if (seen->names[i].bytes == name.bytes &&
            memcmp(seen->names[i].text, name.text, name.bytes) == 0)
            *before = true;
    if (*before)
        return ERR_OK;
    size_t number = seen->map.count;
    TRY(array_room(&seen->names, &seen->capacity, number + 1));
    seen->names[number] = name;
    return map_add(&seen->map, hash, number);
}

static enum err count_line(const char *line, const char *name,
                           struct seen *seen, struct cluster_shares *out,
                           bool *here)
{
    struct field fields[3]; /* node, state, partition */
    bool before = false;
    TRY(cut_line(line, 3, fields));
    if (strncasecmp(fields[1].text, "future", 6) == 0)
        return ERR_OK;
    bool is_out = counts_as_out(fields[1]);
    if (field_is(fields[0], name)) {
        *here = true;
        out->here_out |= word_is_out(fields[1].text);
    }
    TRY(see(seen, fields[0], &before));
    struct cluster_share *share = share_of(out, fields[2]);
    if (share != NULL) {
        share->nodes++;
        share->out += is_out;
    }
    if (!before) {
        out->list[0].nodes++;
        out->list[0].out += is_out;
    }
    return ERR_OK;
}

enum err cluster_shares_parse(const char *text, const struct cluster_node *node,
                              const char *name, struct cluster_shares *out)
{
    enum err rc = ERR_OK;
    struct seen seen = { 0 };
    bool here = false;
    assert(node->partition_count <= CLUSTER_SHARES_MAX && *name != '\0');
    *out = (struct cluster_shares){ .count = 1 };
    snprintf(out->list[0].name, CLUSTER_NAME_BYTES, CLUSTER_EVERYWHERE);
    for (int i = 0; i < node->partition_count; i++)
        memcpy(out->list[out->count++].name, node->partitions[i],
               CLUSTER_NAME_BYTES);
    for (const char *line = text; line != NULL; line = next_line(line))
        TRY_OUT(count_line(line, name, &seen, out, &here));
    if (!here)
        rc = err_set(ERR_DATA, "%s is not among the %d nodes of sinfo", name,
                     out->list[0].nodes);
out:
    map_free(&seen.map);
    free(seen.names);
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
