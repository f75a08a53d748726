/* Unpacks runs and deltas. Numbers are bits one behind the other, the lowest
 * first, in whole bytes for each run or miniblock. A delta's numbers wrap around
 * at 2^64, as the format has it; what comes out is a length or is refused. */

#include "src/data/parquet/parquet_impl.h"

/* A miniblock's head says at most this; writers use 128 in 4. */
#define RUNS_BLOCK_MAX 65536

uint32_t parquet_runs_next(struct parquet_runs *runs)
{
    struct thrift *bytes = &runs->bytes;
    while (runs->left == 0 && !bytes->bad) {
        uint64_t head = thrift_varint(bytes);
        runs->packed = (head & 1) != 0;
        runs->left = runs->packed ? head >> 1 << 3 : head >> 1;
        runs->have = 0;
        runs->value = 0;
        for (int i = 0; !runs->packed && i < runs->width; i += 8) {
            if (bytes->at == bytes->end)
                bytes->bad = true;
            else
                runs->value |= (uint32_t)*bytes->at++ << i;
        }
        bytes->bad = bytes->bad || head == 0 || head >> 1 > INT32_MAX;
    }
    if (bytes->bad)
        return 0;
    runs->left--;
    if (!runs->packed)
        return runs->value;
    while (runs->have < runs->width) {
        if (bytes->at == bytes->end) {
            bytes->bad = true;
            return 0;
        }
        runs->bits |= (uint64_t)*bytes->at++ << runs->have;
        runs->have += 8;
    }
    uint32_t value = (uint32_t)(runs->bits & ((1ull << runs->width) - 1));
    runs->bits >>= runs->width;
    runs->have -= runs->width;
    return value;
}

/* `width` bits, up to 64, from bit `at` on. */
static uint64_t runs_bits(const uint8_t *data, size_t at, unsigned width)
{
    uint64_t value = 0;
    for (unsigned got = 0; got < width;) {
        unsigned shift = (unsigned)(at % 8), part = 8 - shift;
        part = part < width - got ? part : width - got;
        value |= (uint64_t)(data[at / 8] >> shift & ((1u << part) - 1)) << got;
        got += part;
        at += part;
    }
    return value;
}

static enum err runs_wrong(void)
{
    return err_set(ERR_DATA, "has lengths that are none");
}

enum err parquet_runs_lengths(struct thrift *bytes, size_t most,
                              struct parquet_lengths *out)
{
    uint64_t block = thrift_varint(bytes), minis = thrift_varint(bytes);
    uint64_t total = thrift_varint(bytes);
    uint64_t value = (uint64_t)thrift_zigzag(bytes);
    size_t done = 0;
    if (bytes->bad || total > most || minis == 0 || block > RUNS_BLOCK_MAX ||
        block % minis != 0 || block / minis % 8 != 0 || value > INT32_MAX)
        return runs_wrong();
    size_t each = (size_t)(block / minis);
    TRY(array_room(&out->length, &out->capacity, total + 1));
    out->length[done++] = (uint32_t)value; /* it lies in the head */
    while (done < total) {
        uint64_t least = (uint64_t)thrift_zigzag(bytes);
        const uint8_t *widths = bytes->at;
        if (bytes->bad || each == 0 ||
            minis > (uint64_t)(bytes->end - bytes->at))
            return runs_wrong();
        bytes->at += minis;
        for (uint64_t m = 0; m < minis && done < total; m++) {
            size_t width = widths[m], at = 0;
            const uint8_t *data = bytes->at;
            if (width > 64 ||
                width * (each / 8) > (size_t)(bytes->end - bytes->at))
                return runs_wrong();
            bytes->at += width * (each / 8);
            for (size_t i = 0; i < each && done < total; i++, at += width) {
                value += least + runs_bits(data, at, (unsigned)width);
                if (value > INT32_MAX)
                    return runs_wrong();
                out->length[done++] = (uint32_t)value;
            }
        }
    }
    out->count = (size_t)total;
    return ERR_OK;
}

/* --- Thrift's compact protocol ---
 *
 * A field's head is a byte: its type, and how far its number is from the last
 * one's, or 0, with the number behind it. Numbers are varints, truths lie in the
 * type. Nothing is allocated; what is not wanted is stepped over, which is why a
 * depth has a limit here: it is the only recursion. Parquet has no maps. */

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
