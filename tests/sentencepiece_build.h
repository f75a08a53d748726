/* SentencePiece models made of a few pieces, for tests: protobuf by hand. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct proto {
    uint8_t data[65536];
    size_t bytes;
};

static inline void proto_number(struct proto *p, uint64_t value)
{
    for (; value > 127; value >>= 7)
        p->data[p->bytes++] = (uint8_t)(value | 128);
    p->data[p->bytes++] = (uint8_t)value;
}

static inline void proto_varint(struct proto *p, unsigned field, uint64_t value)
{
    proto_number(p, field << 3);
    proto_number(p, value);
}

static inline void proto_bytes(struct proto *p, unsigned field,
                               const void *data, size_t bytes)
{
    proto_number(p, field << 3 | 2);
    proto_number(p, bytes);
    memcpy(p->data + p->bytes, data, bytes);
    p->bytes += bytes;
}

static inline void proto_piece(struct proto *p, const char *text, float score,
                               unsigned type)
{
    static struct proto piece;
    piece.bytes = 0;
    proto_bytes(&piece, 1, text, strlen(text));
    proto_number(&piece, 2 << 3 | 5);
    memcpy(piece.data + piece.bytes, &score, 4);
    piece.bytes += 4;
    proto_varint(&piece, 3, type);
    proto_bytes(p, 1, piece.data, piece.bytes);
}
