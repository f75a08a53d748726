/* One table for both ways, as in job_words.c. A node is found by the first label
 * of its name, since a host may call itself by its domain, too. */
#include "src/control/nodes_words.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"

enum form {
    FLAG,  /* a list of nodes: they have it */
    PLACE, /* a list of nodes: they are there */
    NUMBER,
    TEXT
};

#define ASKED 9 /* its row */
static const struct fact {
    const char *name;
    enum form form;
    size_t offset;
    enum nodes_place place;
    bool back; /* what a call may change */
} facts_table[] = {
#define LIST(field, back)                                                      \
    {                                                                          \
#field, FLAG, offsetof(struct nodes_node, field), 0, back              \
    }
#define SCALAR(field, form, back)                                              \
    {                                                                          \
#field, form, offsetof(struct nodes_facts, nodes.field), 0, back       \
    }
    LIST(allocated, false), /* first: in its order all others stand */
    LIST(usable, false),
    LIST(excluded, false),
    LIST(warned, true),
    LIST(was_bad, true),
    LIST(suspect, true),
    LIST(lost, false),
    LIST(slow, false),
    LIST(trained, false),
    [ASKED] = LIST(asked, true),
    { "good", PLACE, 0, NODES_GOOD, true },
    { "bad", PLACE, 0, NODES_BAD, true },
    { "unknown", PLACE, 0, NODES_UNKNOWN, true },
    LIST(given, true),
    LIST(kept, true),
    SCALAR(host, TEXT, false),
    SCALAR(wanted, NUMBER, false),
    SCALAR(wanted_min, NUMBER, false),
    SCALAR(quick, NUMBER, false),
    SCALAR(at, NUMBER, true),
    SCALAR(tries, NUMBER, true),
    SCALAR(again, NUMBER, true),
    SCALAR(code, NUMBER, false),
    SCALAR(late, NUMBER, false),
    SCALAR(seconds, NUMBER, false),
    { "total", NUMBER, offsetof(struct nodes_facts, total), 0, false },
};
#define FACTS (sizeof facts_table / sizeof *facts_table)

static size_t label(const char *name)
{
    return strcspn(name, ".");
}

/* NULL: none; of several that are called alike but for their domains the one that
 * was named first. */
static struct nodes_node *find(const struct nodes_facts *facts,
                               const char *name, bool exact)
{
    size_t bytes = label(name);
    struct nodes_node *alike = NULL;
    for (size_t at = 0, i;
         map_next(&facts->names, map_hash_bytes(name, bytes), &at, &i);) {
        struct nodes_node *node = &facts->nodes.list[i];
        if (strcmp(node->name, name) == 0)
            return node;
        if (alike == NULL && label(node->name) == bytes &&
            memcmp(node->name, name, bytes) == 0)
            alike = node;
    }
    return exact ? NULL : alike;
}

struct nodes_node *nodes_words_find(const struct nodes_facts *facts,
                                    const char *name)
{
    return find(facts, name, false);
}

static enum err find_or_add(struct nodes_facts *facts, const char *name,
                            bool exact, struct nodes_node **out)
{
    size_t count = (size_t)facts->nodes.count;
    *out = find(facts, name, exact);
    if (*out != NULL)
        return ERR_OK;
    TRY(array_room(&facts->nodes.list, &facts->room, count + 1));
    TRY(map_add(&facts->names, map_hash_bytes(name, label(name)), count));
    facts->nodes.list[count] = (struct nodes_node){ .name = name };
    facts->nodes.count++;
    *out = &facts->nodes.list[count];
    return ERR_OK;
}

static enum err take_list(const struct fact *fact, char *value,
                          struct nodes_facts *facts)
{
    for (char *name; (name = strsep(&value, " ,")) != NULL;) {
        struct nodes_node *node;
        if (*name == '\0')
            continue;
        TRY(find_or_add(facts, name, fact == facts_table, &node));
        if (fact->form == PLACE)
            node->place = fact->place;
        else
            *(bool *)((char *)node + fact->offset) = true;
    }
    return ERR_OK;
}

static enum err take(const struct fact *fact, char *value,
                     struct nodes_facts *facts)
{
    char *field = (char *)facts + fact->offset, *end;
    if (fact->form <= PLACE)
        return take_list(fact, value, facts);
    if (fact->form == TEXT) {
        memcpy(field, &value, sizeof value);
        return ERR_OK;
    }
    long number = strtol(value, &end, 10);
    if (end == value || *end != '\0' || number < 0 || number > 1000000000)
        return err_set(ERR_USAGE, "%s %s: not such a value", fact->name, value);
    *(int *)field = (int)number;
    return ERR_OK;
}

enum err nodes_words_read(char *text, struct nodes_facts *facts)
{
    for (char *line; (line = strsep(&text, "\n")) != NULL;) {
        const char *name = strsep(&line, " ");
        size_t row = 0;
        if (*name == '\0')
            continue;
        while (row < FACTS && strcmp(facts_table[row].name, name) != 0)
            row++;
        if (row == FACTS || line == NULL)
            return err_set(ERR_USAGE, "'%s': no fact about nodes", name);
        TRY(take(&facts_table[row], line, facts));
    }
    return facts->nodes.wanted > 0 && facts->nodes.wanted_min > 0 &&
                   facts->nodes.at <= NODES_AT_PAIRS
               ? ERR_OK
               : err_set(ERR_USAGE, "nodes: give wanted and wanted_min");
}

void nodes_words_free(struct nodes_facts *facts)
{
    free(facts->nodes.list);
    map_free(&facts->names);
}

/* --- the way back --- */

static bool has(const struct fact *fact, const struct nodes_node *node)
{
    return fact->form == PLACE
               ? node->allocated && node->place == fact->place
               : *(const bool *)((const char *)node + fact->offset);
}

static void write_list(const struct nodes *nodes, const struct fact *fact,
                       char between, FILE *out)
{
    bool first = true;
    for (int i = 0; i < nodes->count; i++)
        if (has(fact, &nodes->list[i])) {
            fprintf(out, "%.*s%s", first ? 0 : 1, &between,
                    nodes->list[i].name);
            first = false;
        }
}

void nodes_words_good(const struct nodes *nodes, const int *order, int count,
                      char between, FILE *out)
{
    for (int i = 0; i < count; i++)
        fprintf(out, "%.*s%s", i == 0 ? 0 : 1, &between,
                nodes->list[order[i]].name);
}

static void write_fact(const struct nodes_facts *facts, const struct fact *fact,
                       const int *order, int good, FILE *out)
{
    fprintf(out, "%s ", fact->name);
    if (fact->form == NUMBER)
        fprintf(out, "%d", *(const int *)((const char *)facts + fact->offset));
    else if (fact->form == PLACE && fact->place == NODES_GOOD)
        nodes_words_good(&facts->nodes, order, good, ' ', out);
    else
        write_list(&facts->nodes, fact, ' ', out);
    fputc('\n', out);
}

static void say_all(const struct nodes *nodes, enum nodes_what what, int good,
                    FILE *out)
{
    bool none = true, silent = true;
    for (int i = 0; i < nodes->count; i++) {
        const struct nodes_node *node = &nodes->list[i];
        none = none && !node->judged;
        silent = silent && !(node->judged && node->reason != nodes->silence);
    }
    if (what == NODES_RESTART)
        fprintf(out, "say %s, trying again\n",
                silent ? "the check did not start"
                       : "no node is known to be good");
    if (what == NODES_AGAIN) {
        fprintf(out, "say %d good nodes, %d wanted: checking ", good,
                nodes->wanted);
        write_list(nodes, &facts_table[ASKED], ',', out);
        fputs(" again\n", out);
    }
    if (what == NODES_GO && nodes->at == NODES_AT_PAIRS && none)
        fprintf(out, "say the pair check gave no verdict (code %d), going on\n",
                nodes->code);
}

void nodes_words_write(const struct nodes_facts *facts, enum nodes_what what,
                       const int *order, int good, FILE *out)
{
    const struct nodes *nodes = &facts->nodes;
    say_all(nodes, what, good, out);
    for (size_t row = 0; row < FACTS; row++)
        if (facts_table[row].back)
            write_fact(facts, &facts_table[row], order, good, out);
    fprintf(out, "spare %d\nelsewhere %s\ndo %s\n", nodes_spare(nodes),
            nodes_elsewhere(nodes) ? "yes" : "no", nodes_what_names[what]);
}
