/* What the reader of Arrow (arrow.c) is told by the heads of messages
 * (arrow_meta.c). */
#pragma once

#include "src/base/array.h"
#include "src/data/columns/columns_format.h"

enum arrow_kind {
    ARROW_OTHER, /* no text */
    ARROW_STRUCT,
    ARROW_LIST,
    ARROW_LARGE_LIST,
    ARROW_TEXT,
    ARROW_LARGE_TEXT,
    ARROW_PLACES, /* in a dictionary of texts */
};

/* A node of the tree of columns, in the order in which batches have them. */
struct arrow_node {
    enum arrow_kind kind, words; /* words: what its dictionary has */
    size_t above, leaf;          /* SIZE_MAX: none */
    size_t buffers, first; /* of its own; where those of the batch begin */
    bool views;            /* and any number more */
    int64_t dictionary;    /* its id */
    int64_t place_bytes;
    bool place_signed;
};

struct arrow_message {
    enum { ARROW_END, ARROW_SCHEMA, ARROW_DICTIONARY, ARROW_BATCH } kind;
    size_t table;            /* of a schema */
    int64_t at, next;        /* itself and what follows */
    int64_t id, rows, codec; /* codec -1: none */
    bool delta;
    int64_t body, body_bytes;
    const uint8_t *node, *buffer, *view; /* 16, 16 and 8 bytes each, lent until
                                          * another one is read */
    size_t nodes, buffers, views;
};

struct arrow_dictionary {
    int64_t at, id;
    size_t before; /* record batches */
};

struct arrow_meta {
    struct columns_file file; /* its groups are record batches */
    int64_t end, version;     /* end: of the messages */
    struct buffer head;
    struct arrow_node *node;
    size_t nodes, nodes_capacity, rows_capacity;
    int64_t *batch; /* where they begin; [file.groups] */
    size_t batch_capacity;
    struct arrow_dictionary *dictionary;
    size_t dictionaries, dictionaries_capacity;
};

/* Open a file, in zeros: its columns, and where dictionaries and batches are. */
enum err arrow_meta_open(const char *path, struct arrow_meta *meta);
enum err arrow_meta_message(struct arrow_meta *meta, int64_t at,
                            struct arrow_message *out);
void arrow_meta_close(struct arrow_meta *meta);
/* `bytes` of a number, its sign only of 4. */
int64_t arrow_meta_number(const uint8_t *data, size_t bytes);
/* Where in its dictionary a value is. */
int64_t arrow_meta_place(const struct arrow_node *node, const uint8_t *data);
