/* Added tokens in a trie, of which the longest that stands at a place is wanted.
 *
 * A node is a beginning of some tokens. There may be a hundred thousand tokens,
 * and most nodes have one child, so a node has no table of 256 children: all
 * edges are in one map, by node and byte. A text has an added token at very few
 * of its places, and at the others the answer must cost next to nothing: a bit
 * for each pair of bytes says whether a token begins with it, and only where it
 * is set the trie is walked. */
#include "src/text/tokenizer/added.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/map.h"
#include "src/base/new.h"

#define ADDED_NONE UINT32_MAX

struct added_node {
    uint64_t key;  /* of the edge to it: the node before it, a byte */
    int32_t token; /* that ends here; -1: none does */
    uint32_t flags;
};

struct added {
    struct added_node *node;
    size_t nodes, nodes_capacity;
    struct map edges;           /* nodes by their keys */
    uint64_t pairs[65536 / 64]; /* first two bytes */
    size_t longest;
    unsigned flags;
};

static uint64_t added_key(uint32_t node, uint8_t byte)
{
    return (uint64_t)node << 8 | byte;
}

/* The node behind this one by the byte; ADDED_NONE: no token goes on so. */
static uint32_t added_child(const struct added *added, uint32_t node,
                            uint8_t byte)
{
    uint64_t key = added_key(node, byte);
    uint32_t hash = map_hash_number(key);
    for (size_t at = 0, i; map_next(&added->edges, hash, &at, &i);)
        if (added->node[i].key == key)
            return (uint32_t)i;
    return ADDED_NONE;
}

static enum err added_new_node(struct added *added, uint64_t key)
{
    TRY(array_room(&added->node, &added->nodes_capacity, added->nodes + 1));
    added->node[added->nodes++] =
        (struct added_node){ .key = key, .token = -1 };
    return ERR_OK;
}

enum err added_create(struct added **out)
{
    assert(out != NULL);
    struct added *added = NULL;
    TRY(new_zeroed(&added, 1));
    /* the root, which no edge leads to */
    enum err rc = added_new_node(added, 0);
    return new_or_none(rc, added, out, added_destroy);
}

void added_destroy(struct added *added)
{
    if (added == NULL)
        return;
    free(added->node);
    map_free(&added->edges);
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
        uint32_t child = added_child(added, at, text[i]);
        if (child == ADDED_NONE) {
            uint64_t key = added_key(at, text[i]);
            child = (uint32_t)added->nodes;
            TRY(added_new_node(added, key));
            TRY(map_add(&added->edges, map_hash_number(key), child));
        }
        at = child;
    }
    if (added->node[at].token >= 0)
        return err_set(ERR_DATA, "added tokens %d and %d have the same text",
                       added->node[at].token, token);
    added->node[at].token = token;
    added->node[at].flags = flags;
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
        at = added_child(added, at, text[i]);
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
        at = added_child(added, at, text[i]);
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
            at = added_child(added, at, text[i]);
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
