/* Added tokens in a trie whose edges lie in a hash table. A search walks it only
 * where the first two bytes of a token stand. */
#include "src/text/tokenizer/added.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"

#define ADDED_NONE UINT32_MAX

struct added_edge {
    uint64_t key; /* node, byte */
    uint32_t to;  /* ADDED_NONE: empty */
};

struct added_node {
    int32_t token; /* that ends here; -1: none does */
    uint32_t flags;
};

struct added {
    struct added_node *node;
    size_t nodes, nodes_capacity;
    struct added_edge *edge;
    size_t edges, edge_mask;
    uint64_t pairs[65536 / 64]; /* first two bytes */
    size_t longest;
    unsigned flags;
};

static size_t added_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15;
    return (size_t)(key ^ key >> 32);
}

static struct added_edge *added_edge(const struct added *added, uint32_t node,
                                     uint8_t byte)
{
    uint64_t key = (uint64_t)node << 8 | byte;
    size_t i = added_hash(key) & added->edge_mask;
    while (added->edge[i].to != ADDED_NONE && added->edge[i].key != key)
        i = (i + 1) & added->edge_mask;
    return &added->edge[i];
}

/* The edges in a table of this size. */
static enum err added_rehash(struct added *added, size_t size)
{
    struct added_edge *old = added->edge;
    size_t old_size = old == NULL ? 0 : added->edge_mask + 1;
    added->edge = malloc(size * sizeof *added->edge);
    if (added->edge == NULL) {
        added->edge = old;
        return err_set(ERR_MEMORY, "no memory for added tokens");
    }
    added->edge_mask = size - 1;
    for (size_t i = 0; i < size; i++)
        added->edge[i] = (struct added_edge){ .to = ADDED_NONE };
    for (size_t i = 0; i < old_size; i++)
        if (old[i].to != ADDED_NONE)
            *added_edge(added, (uint32_t)(old[i].key >> 8),
                        (uint8_t)old[i].key) = old[i];
    free(old);
    return ERR_OK;
}

static enum err added_new_node(struct added *added)
{
    TRY(array_room(&added->node, &added->nodes_capacity, added->nodes + 1));
    added->node[added->nodes++] = (struct added_node){ .token = -1 };
    return ERR_OK;
}

enum err added_create(struct added **out)
{
    assert(out != NULL);
    enum err rc = ERR_OK;
    struct added *added = NULL;
    TRY(new_zeroed(&added, 1));
    TRY_OUT(added_rehash(added, 64));
    TRY_OUT(added_new_node(added));
    *out = added;
    added = NULL;
out:
    added_destroy(added);
    return rc;
}

void added_destroy(struct added *added)
{
    if (added == NULL)
        return;
    free(added->node);
    free(added->edge);
    free(added);
}

static unsigned added_text_flags(const uint8_t *text, size_t bytes)
{
    unsigned flags = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] <= ' ')
            flags |= ADDED_BLANK;
        if (bytes - i >= 3 && memcmp(text + i, "\xEF\xBF\xBD", 3) == 0)
            flags |= ADDED_REPLACEMENT;
    }
    return flags;
}

static void added_pair(struct added *added, const uint8_t *text, size_t bytes)
{
    size_t first = (size_t)text[0] << 8;
    for (size_t second = 0; second < 256; second++)
        if (bytes == 1 || second == text[1])
            added->pairs[(first | second) / 64] |= UINT64_C(1) << second % 64;
}

enum err added_add(struct added *added, const uint8_t *text, size_t bytes,
                   int32_t token, unsigned flags)
{
    assert(added != NULL && (text != NULL || bytes == 0));
    uint32_t at = 0;
    if (bytes == 0)
        return err_set(ERR_DATA, "an added token is empty");
    if (bytes > ADDED_BYTES_MAX)
        return err_set(ERR_DATA, "an added token has %zu bytes, at most %d",
                       bytes, ADDED_BYTES_MAX);
    for (size_t i = 0; i < bytes; i++) {
        if (2 * added->edges > added->edge_mask)
            TRY(added_rehash(added, 2 * (added->edge_mask + 1)));
        struct added_edge *edge = added_edge(added, at, text[i]);
        if (edge->to == ADDED_NONE) {
            TRY(added_new_node(added));
            edge->key = (uint64_t)at << 8 | text[i];
            edge->to = (uint32_t)(added->nodes - 1);
            added->edges++;
        }
        at = edge->to;
    }
    if (added->node[at].token >= 0)
        return err_set(ERR_DATA, "added tokens %d and %d have the same text",
                       added->node[at].token, token);
    added->node[at] = (struct added_node){ .token = token, .flags = flags };
    added_pair(added, text, bytes);
    if (bytes > added->longest)
        added->longest = bytes;
    added->flags |= flags | added_text_flags(text, bytes);
    return ERR_OK;
}

unsigned added_flags(const struct added *added)
{
    return added->flags;
}

int32_t added_find(const struct added *added, const uint8_t *text, size_t bytes)
{
    assert(added != NULL && (text != NULL || bytes == 0));
    uint32_t at = 0;
    for (size_t i = 0; i < bytes && at != ADDED_NONE; i++)
        at = added_edge(added, at, text[i])->to;
    return at == ADDED_NONE ? -1 : added->node[at].token;
}

/* Where a token may begin, from there on; `bytes`: nowhere. */
static size_t added_begin(const struct added *added, const uint8_t *text,
                          size_t bytes, size_t from)
{
    for (size_t i = from; i < bytes; i++) {
        size_t pair = (size_t)text[i] << 8 | (i + 1 < bytes ? text[i + 1] : 0);
        if ((added->pairs[pair / 64] >> pair % 64 & 1) != 0)
            return i;
    }
    return bytes;
}

/* The longest token there: its end and node, or 0. */
static size_t added_longest(const struct added *added, const uint8_t *text,
                            size_t bytes, size_t from, uint32_t *node)
{
    size_t end = 0;
    uint32_t at = 0;
    for (size_t i = from; i < bytes; i++) {
        at = added_edge(added, at, text[i])->to;
        if (at == ADDED_NONE)
            break;
        if (added->node[at].token >= 0) {
            end = i + 1;
            *node = at;
        }
    }
    return end;
}

static bool added_word(const struct unicode *unicode, uint32_t point)
{
    return (unicode->of[point] & UNICODE_WORD) != 0;
}

static bool added_stands_alone(const struct unicode *unicode,
                               const uint8_t *text, size_t bytes, size_t start,
                               size_t end)
{
    size_t length = 0;
    return (start == 0 || !added_word(unicode, unicode_before(text, start))) &&
           (end == bytes ||
            !added_word(unicode, unicode_at(text + end, &length)));
}

/* Widen the match by the white space that its token takes. */
static void added_strip(const struct unicode *unicode, const uint8_t *text,
                        size_t bytes, unsigned flags, size_t done,
                        struct added_match *match)
{
    size_t start = match->start, length = 0;
    if ((flags & ADDED_LSTRIP) != 0) {
        while (start > 0) {
            uint32_t point = unicode_before(text, start);
            uint8_t put[4];
            if ((unicode->of[point] & UNICODE_SPACE) == 0)
                break;
            start -= unicode_put(point, put);
        }
        match->start = start > done ? start : done;
    }
    if ((flags & ADDED_RSTRIP) != 0)
        while (match->end < bytes &&
               (unicode->of[unicode_at(text + match->end, &length)] &
                UNICODE_SPACE) != 0)
            match->end += length;
}

bool added_next(const struct added *added, const struct unicode *unicode,
                const uint8_t *text, size_t bytes, bool special,
                struct added_search *search, struct added_match *match)
{
    assert(search != NULL && match != NULL);
    for (;;) {
        uint32_t node = 0;
        size_t start = added_begin(added, text, bytes, search->from);
        if (start == bytes)
            return false;
        size_t end = added_longest(added, text, bytes, start, &node);
        if (end == 0) {
            search->from = start + 1;
            continue;
        }
        search->from = end;
        unsigned flags = added->node[node].flags;
        if ((flags & ADDED_SPECIAL) != 0 && !special)
            continue;
        if ((flags & ADDED_SINGLE_WORD) != 0 &&
            !added_stands_alone(unicode, text, bytes, start, end))
            continue;
        *match = (struct added_match){ .start = start,
                                       .end = end,
                                       .token = added->node[node].token };
        added_strip(unicode, text, bytes, flags, search->done, match);
        return true;
    }
}

bool added_straddles(const struct added *added, const uint8_t *text,
                     size_t bytes, size_t cut, bool touch)
{
    assert(added != NULL && cut <= bytes);
    size_t from = cut > added->longest ? cut - added->longest : 0;
    for (size_t start = from; start < cut; start++) {
        uint32_t at = 0;
        size_t i = start;
        while (i < bytes) {
            at = added_edge(added, at, text[i])->to;
            if (at == ADDED_NONE)
                break;
            i++;
            const struct added_node *node = &added->node[at];
            if (node->token >= 0 &&
                (i > cut ||
                 (i == cut && (touch || (node->flags & ADDED_RSTRIP) != 0))))
                return true;
        }
        if (i == bytes && at != ADDED_NONE)
            return true; /* what follows is not known */
    }
    return false;
}
