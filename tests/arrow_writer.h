/* Writes small Arrow files and streams, by hand, for tests: flatbuffers are laid down
 * from the front, a table with eight bytes for each field, and pointed to later. */
#pragma once

#include <string.h>

#include "src/base/array.h"
#include "tests/data_fixture.h"

enum { WRITE_PLAIN = -1, WRITE_LZ4, WRITE_ZSTD };
enum { /* types by the format's numbers */
       TYPE_INT = 2,
       TYPE_BINARY = 4,
       TYPE_UTF8 = 5,
       TYPE_BOOL = 6,
       TYPE_LIST = 12,
       TYPE_STRUCT,
       TYPE_UNION,
       TYPE_LARGE_UTF8 = 20,
       TYPE_LARGE_LIST,
       TYPE_VIEW = 24,
};

struct write_field {
    const char *name;
    int type;
    int place_bits; /* not 0: of a dictionary with the id 7; below: no sign */
    const struct write_field *child;
    size_t children;
};

/* A record batch in the making, in zeros: write_array() and the buffers of it with
 * write_part(), for each array. */
struct write_batch {
    int codec; /* WRITE_PLAIN, .. */
    struct buffer nodes, parts, body;
};

static void write_bytes(struct buffer *out, const void *data, size_t bytes)
{
    fixture_need(buffer_add(out, data, bytes));
}

/* Up to a multiple of 8, plus `rest`. */
static void write_align(struct buffer *out, size_t rest)
{
    while (out->bytes % 8 != rest)
        write_bytes(out, "", 1);
}

/* A table with these fields, of which `there` says by bits which it has. */
static size_t write_table(struct buffer *out, size_t fields,
                          const int64_t *value, unsigned there)
{
    write_align(out, 0);
    size_t vtable = out->bytes;
    uint16_t head[2] = { (uint16_t)(4 + 2 * fields),
                         (uint16_t)(8 + 8 * fields) };
    write_bytes(out, head, 4);
    for (size_t f = 0; f < fields; f++) {
        uint16_t place = there >> f & 1 ? (uint16_t)(8 + 8 * f) : 0;
        write_bytes(out, &place, 2);
    }
    write_align(out, 0);
    int32_t back[2] = { (int32_t)(out->bytes - vtable), 0 };
    size_t table = out->bytes;
    write_bytes(out, back, 8);
    write_bytes(out, value, 8 * fields);
    return table;
}

/* What is at a place points to another one, behind it. */
static void write_link(struct buffer *out, size_t from, size_t to)
{
    uint32_t far = (uint32_t)(to - from);
    memcpy(out->data + from, &far, 4);
}

static size_t write_place(size_t table, size_t field)
{
    return table + 8 + 8 * field;
}

/* A list of `count` elements, whose bytes follow it. */
static void write_list(struct buffer *out, size_t table, size_t field,
                       uint32_t count)
{
    write_align(out, 4);
    write_link(out, write_place(table, field), out->bytes);
    write_bytes(out, &count, 4);
}

static void write_fields(struct buffer *out, size_t table, size_t field,
                         const struct write_field *list, size_t count)
{
    write_list(out, table, field, (uint32_t)count);
    size_t places = out->bytes;
    for (size_t i = 0; i < count; i++)
        write_bytes(out, "\0\0\0", 4);
    for (size_t i = 0; i < count; i++) {
        const struct write_field *one = &list[i];
        int64_t value[6] = { 0, 1, one->type };
        size_t at = write_table(out, 6, value,
                                0x2f | (one->place_bits != 0 ? 0x10 : 0));
        write_link(out, places + 4 * i, at);
        write_list(out, at, 0, (uint32_t)strlen(one->name));
        write_bytes(out, one->name, strlen(one->name) + 1);
        int64_t type[2] = { one->type == TYPE_INT ? 64 : 1, 1 };
        size_t made = write_table(out, 2, type,
                                  one->type == TYPE_INT     ? 3
                                  : one->type == TYPE_UNION ? 1
                                                            : 0);
        write_link(out, write_place(at, 3), made);
        if (one->place_bits != 0) {
            int64_t id[2] = { 7, 0 };
            int64_t bits[2] = { abs(one->place_bits), one->place_bits > 0 };
            made = write_table(out, 2, id, 3);
            write_link(out, write_place(at, 4), made);
            size_t place = write_table(out, 2, bits, 3);
            write_link(out, write_place(made, 1), place);
        }
        write_fields(out, at, 5, one->child, one->children);
    }
}

/* The head of a message, whose header has these fields; *header: where that is. */
static void write_head(struct buffer *out, int kind, size_t fields,
                       const int64_t *value, unsigned there, size_t body,
                       size_t *header)
{
    int64_t message[4] = { 4, kind, 0, (int64_t)body };
    out->bytes = 0;
    write_bytes(out, "\0\0\0\0\0\0\0", 8);
    size_t table = write_table(out, 4, message, 15);
    write_link(out, 0, table);
    *header = write_table(out, fields, value, there);
    write_link(out, write_place(table, 2), *header);
}

static void write_message(struct buffer *out, struct buffer *head,
                          const struct buffer *body)
{
    write_align(head, 0);
    uint32_t mark[2] = { 0xffffffff, (uint32_t)head->bytes };
    write_bytes(out, mark, 8);
    write_bytes(out, head->data, head->bytes);
    if (body != NULL)
        write_bytes(out, body->data, body->bytes);
}

/* The beginning, in place of what was there. */
static void write_schema(struct buffer *out, bool file,
                         const struct write_field *list, size_t count,
                         int64_t endian)
{
    struct buffer head = { 0 };
    int64_t value[2] = { endian, 0 };
    size_t schema = 0;
    out->bytes = 0;
    if (file)
        write_bytes(out, "ARROW1\0", 8);
    write_head(&head, 1, 2, value, 3, 0, &schema);
    write_fields(&head, schema, 1, list, count);
    write_message(out, &head, NULL);
    buffer_free(&head);
}

static void write_array(struct write_batch *batch, int64_t length,
                        int64_t nulls)
{
    int64_t node[2] = { length, nulls };
    write_bytes(&batch->nodes, node, 16);
}

/* Less than 256 bytes, packed in a block that has them as they are. */
static void write_part(struct write_batch *batch, const void *data,
                       size_t bytes)
{
    struct buffer *body = &batch->body;
    int64_t length = (int64_t)bytes, place[2] = { (int64_t)body->bytes };
    uint32_t lz4 = (uint32_t)length | 0x80000000u;
    uint8_t zstd[4] = { (uint8_t)bytes, (uint8_t)(1 | bytes << 3),
                        (uint8_t)(bytes >> 5) };
    int codec = bytes > 0 ? batch->codec : WRITE_PLAIN;
    if (codec != WRITE_PLAIN)
        write_bytes(body, &length, 8);
    if (codec == WRITE_LZ4) {
        write_bytes(body, "\4\"M\30\x60@\x82", 7);
        write_bytes(body, &lz4, 4);
    } else if (codec == WRITE_ZSTD) {
        write_bytes(body, "\x28\xb5\x2f\xfd\x20", 5);
        write_bytes(body, zstd, 4);
    }
    write_bytes(body, data, bytes);
    if (codec == WRITE_LZ4)
        write_bytes(body, "\0\0\0", 4);
    place[1] = (int64_t)body->bytes - place[0];
    write_bytes(&batch->parts, place, 16);
    write_align(body, 0);
}

static void write_rows(struct buffer *head, size_t table, size_t field,
                       const struct buffer *list, size_t bytes)
{
    write_list(head, table, field, (uint32_t)(list->bytes / bytes));
    write_bytes(head, list->data, list->bytes);
}

/* The batch, or the dictionary 7; it is empty then. views >= 0: of the views in it. */
static void write_batch(struct buffer *out, struct write_batch *batch,
                        bool dictionary, int64_t rows, int64_t views)
{
    struct buffer head = { 0 };
    int64_t value[5] = { rows }, id[2] = { 7 }, codec = batch->codec;
    size_t table = 0;
    unsigned there = 7 | (codec >= 0 ? 8 : 0) | (views >= 0 ? 16 : 0);
    write_head(&head, dictionary ? 2 : 3, dictionary ? 2 : 5,
               dictionary ? id : value, dictionary ? 3 : there,
               batch->body.bytes, &table);
    if (dictionary) {
        size_t made = write_table(&head, 5, value, there);
        write_link(&head, write_place(table, 1), made);
        table = made;
    }
    write_rows(&head, table, 1, &batch->nodes, 16);
    write_rows(&head, table, 2, &batch->parts, 16);
    if (views >= 0) {
        write_list(&head, table, 4, 1);
        write_bytes(&head, &views, 8);
    }
    if (codec >= 0) {
        size_t made = write_table(&head, 1, &codec, 1);
        write_link(&head, write_place(table, 3), made);
    }
    write_message(out, &head, &batch->body);
    buffer_free(&head);
    buffer_free(&batch->nodes);
    buffer_free(&batch->parts);
    buffer_free(&batch->body);
    *batch = (struct write_batch){ .codec = batch->codec };
}

/* The mark; a file's footer is not looked at, so it has none but its length. */
static void write_end(struct buffer *out, bool file)
{
    write_bytes(out, "\xff\xff\xff\xff\0\0\0", 8);
    if (file)
        write_bytes(out, "footer\0\0\x8\0\0\0ARROW1", 18);
}
