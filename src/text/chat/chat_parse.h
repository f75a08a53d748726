/* The tree of a chat template: statements, and the expressions in them. What
 * Jinja has beyond this subset is refused by name with its line: statements
 * here, all else where it is evaluated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/chat/chat_lex.h"

/* How deeply brackets, blocks and operators lie in one another at most. */
#define CHAT_PARSE_DEPTH_MAX 200

enum chat_node_kind {
    /* statements, one after the other by `next` */
    CHAT_NODE_DATA,  /* text */
    CHAT_NODE_PRINT, /* a */
    CHAT_NODE_IF,    /* a: condition, b: then, c: else, or NULL */
    /* text: variable, or d: ARGUMENTs that name several; a: list, b: body,
     * c: filter, or NULL, other: instead of an empty list, or NULL */
    CHAT_NODE_FOR,
    CHAT_NODE_SET,        /* text: variable, a: value, b: ATTRIBUTE, or NULL */
    CHAT_NODE_MACRO,      /* text: name, a: ARGUMENTs with defaults, b: body */
    CHAT_NODE_GENERATION, /* b: what the assistant says */
    CHAT_NODE_LEAVE,      /* value: 0 break, 1 continue */
    /* expressions */
    CHAT_NODE_NAME,    /* text */
    CHAT_NODE_STRING,  /* text */
    CHAT_NODE_INTEGER, /* value */
    CHAT_NODE_BOOLEAN, /* value */
    CHAT_NODE_NONE,
    CHAT_NODE_REAL,        /* text: a number, which is refused */
    CHAT_NODE_LIST,        /* a: ARGUMENTs; value: 1 for a tuple */
    CHAT_NODE_DICT,        /* a: ARGUMENTs, a key and its value by turns */
    CHAT_NODE_CAPTURE,     /* b: statements, whose text it is */
    CHAT_NODE_ITEM,        /* a[b] */
    CHAT_NODE_ATTRIBUTE,   /* a.text */
    CHAT_NODE_SLICE,       /* a[b:c:d], each of them or NULL */
    CHAT_NODE_CALL,        /* a(b), b: ARGUMENTs */
    CHAT_NODE_FILTER,      /* a | text(b) */
    CHAT_NODE_TEST,        /* a is text(b) */
    CHAT_NODE_NOT,         /* not a */
    CHAT_NODE_MINUS,       /* -a */
    CHAT_NODE_BINARY,      /* a text b */
    CHAT_NODE_AND,         /* a and b */
    CHAT_NODE_OR,          /* a or b */
    CHAT_NODE_CONDITIONAL, /* a if b else c, c may be NULL */
    CHAT_NODE_ARGUMENT     /* a, named text or not; by `next` */
};

struct chat_node {
    enum chat_node_kind kind;
    int line;
    int depth; /* of the tree below */
    const char *text;
    size_t bytes;
    int64_t value;
    struct chat_node *a, *b, *c, *d, *other, *next;
    struct chat_node *made; /* the one that was made before it */
};

struct chat_tree {
    struct chat_lex lex;    /* the texts' */
    struct chat_node *body; /* NULL: an empty template */
    bool generation;        /* it marks what the assistant says */
    struct chat_node *made; /* the last one */
};

/* ERR_DATA names the line. */
enum err chat_parse_read(const char *text, size_t bytes, struct chat_tree *out);
void chat_parse_release(struct chat_tree *tree);
