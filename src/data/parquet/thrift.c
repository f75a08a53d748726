/* Reads the compact protocol of Thrift.
 *
 * A field's head is a byte: its type, and how far its number is from the last
 * one's, or 0, with the number behind it. Numbers are varints, truths lie in the
 * type. Nothing is allocated; what is not wanted is stepped over, which is why a
 * depth has a limit here: it is the only recursion. Parquet has no maps. */
#include "src/data/parquet/thrift.h"

#define THRIFT_DEPTH_MAX 32

static uint8_t thrift_byte(struct thrift *thrift)
{
    if (thrift->bad || thrift->at == thrift->end) {
        thrift->bad = true;
        return 0;
    }
    return *thrift->at++;
}

uint64_t thrift_varint(struct thrift *thrift)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = thrift_byte(thrift);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return thrift->bad ? 0 : value;
    }
    thrift->bad = true;
    return 0;
}

int64_t thrift_zigzag(struct thrift *thrift)
{
    uint64_t value = thrift_varint(thrift);
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

bool thrift_next(struct thrift *thrift, struct thrift_field *field)
{
    uint8_t head = thrift_byte(thrift);
    if (thrift->bad || head == 0)
        return false;
    field->type = head & 0xf;
    if (head >> 4 != 0)
        field->id += head >> 4;
    else
        field->id = thrift_zigzag(thrift);
    thrift->bad = thrift->bad || field->type == 0 ||
                  field->type > THRIFT_STRUCT || field->id < 0 ||
                  field->id > INT16_MAX;
    return !thrift->bad;
}

static size_t thrift_bytes(struct thrift *thrift, uint64_t wanted)
{
    if (wanted > (uint64_t)(thrift->end - thrift->at))
        thrift->bad = true;
    return thrift->bad ? 0 : (size_t)wanted;
}

/* The head of a list: its elements, and their type. */
static size_t thrift_count(struct thrift *thrift, int *type)
{
    uint8_t head = thrift_byte(thrift);
    uint64_t count = head >> 4;
    *type = head & 0xf;
    if (count == 0xf)
        count = thrift_varint(thrift);
    return thrift_bytes(thrift, count);
}

void thrift_skip(struct thrift *thrift, const struct thrift_field *field)
{
    struct thrift_field inner = { 0, 0 };
    size_t count = 0;
    if (++thrift->depth > THRIFT_DEPTH_MAX)
        thrift->bad = true;
    switch (thrift->bad ? -1 : field->type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
    case THRIFT_I8:
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        thrift_int(thrift, field);
        break;
    case THRIFT_DOUBLE:
        thrift->at += thrift_bytes(thrift, 8);
        break;
    case THRIFT_BINARY:
        thrift->at += thrift_bytes(thrift, thrift_varint(thrift));
        break;
    case THRIFT_LIST:
    case THRIFT_SET:
        count = thrift_count(thrift, &inner.type);
        /* in a list a truth is a byte */
        if (inner.type == THRIFT_TRUE || inner.type == THRIFT_FALSE)
            inner.type = THRIFT_I8;
        for (size_t i = 0; i < count && !thrift->bad; i++)
            thrift_skip(thrift, &inner);
        break;
    case THRIFT_STRUCT:
        while (thrift_next(thrift, &inner))
            thrift_skip(thrift, &inner);
        break;
    default:
        thrift->bad = true;
    }
    thrift->depth--;
}

int64_t thrift_int(struct thrift *thrift, const struct thrift_field *field)
{
    if (field->type == THRIFT_TRUE || field->type == THRIFT_FALSE)
        return field->type == THRIFT_TRUE;
    if (field->type == THRIFT_I8)
        return (int8_t)thrift_byte(thrift);
    if (field->type < THRIFT_I16 || field->type > THRIFT_I64)
        thrift->bad = true;
    return thrift_zigzag(thrift);
}

void thrift_struct(struct thrift *thrift, int64_t *number, int64_t count,
                   struct thrift_text *text)
{
    struct thrift_field field = { 0, 0 };
    while (thrift_next(thrift, &field))
        if (field.id < count && field.type <= THRIFT_I64) {
            number[field.id] = thrift_int(thrift, &field);
        } else if (field.type == THRIFT_BINARY && text != NULL) {
            text->bytes = thrift_bytes(thrift, thrift_varint(thrift));
            text->data = thrift->at;
            thrift->at += text->bytes;
        } else {
            thrift_skip(thrift, &field);
        }
}

size_t thrift_list(struct thrift *thrift, const struct thrift_field *field,
                   enum thrift_type type)
{
    int found = 0;
    size_t count = 0;
    if (field->type != THRIFT_LIST)
        thrift->bad = true;
    count = thrift_count(thrift, &found);
    if (count > 0 && found != (int)type)
        thrift->bad = true;
    return thrift->bad ? 0 : count;
}
