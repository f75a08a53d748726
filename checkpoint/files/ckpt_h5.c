/* Puts together the bytes of an HDF5 file in memory, without the HDF5 library,
 * for checkpoint.h5. Shards are made with the library, in ckpt_hdf5.c.
 *
 * Everything in an HDF5 file is found by its offset. The superblock, the first
 * 48 bytes, has that of the root's object header; an object header is a list of
 * messages (kind, length, flags, contents), and what an object is follows from
 * those that it has: link messages make a group, each a name and the offset of
 * another header; data space, data type, fill value and layout make a dataset,
 * whose layout says where the numbers are; attributes are messages, too. What
 * has no fixed length lies in a global heap, a collection of numbered objects,
 * and is named by the collection's offset and its number.
 *
 * So a file is written from its leaves to its root, each offset known when it
 * is needed, and only the superblock afterwards, into room that was left for it.
 * Older files find links by B-trees and symbol tables; the latest format may
 * have them in the header itself, as here all are, however many. Superblock and
 * headers end with a checksum of theirs; a heap has none. */
#include "checkpoint/files/ckpt_h5.h"

#include <assert.h>
#include <string.h>

#include "src/base/array.h"

#define HEADER_PREFIX_BYTES 10 /* OHDR, version, flags, size of messages */
/* A collection of heap objects: readers load all of one to see any. */
#define HEAP_BYTES_MIN 4096
#define HEAP_BYTES_MAX 65536
#define HEAP_OBJECT_BYTES 16
#define INTEGER_TYPE_BYTES 12
#define FLOAT_TYPE_BYTES 20
#define TEXT_TYPE_BYTES 20
#define TEXT_BYTES 16 /* length, and where it is in the heap */

/* --- bytes --- */

void ckpt_h5_put(struct ckpt_h5 *file, const void *data, size_t bytes)
{
    if (!file->failed)
        file->failed =
            array_room(&file->data, &file->room, file->bytes + bytes) != ERR_OK;
    if (file->failed || bytes == 0)
        return;
    memcpy(file->data + file->bytes, data, bytes);
    file->bytes += bytes;
}

/* The machine is little-endian, as is the file. */
void ckpt_h5_number(struct ckpt_h5 *file, uint64_t value, size_t bytes)
{
    assert(bytes <= sizeof value);
    ckpt_h5_put(file, &value, bytes);
}

void ckpt_h5_zeros(struct ckpt_h5 *file, size_t bytes)
{
    for (; bytes > 0; bytes--)
        ckpt_h5_number(file, 0, 1);
}

void ckpt_h5_set(struct ckpt_h5 *file, size_t at, uint64_t value, size_t bytes)
{
    assert(file->failed || at + bytes <= file->bytes);
    if (!file->failed)
        memcpy(file->data + at, &value, bytes);
}

void ckpt_h5_checksum(struct ckpt_h5 *file, size_t begin)
{
    assert(file->failed || begin <= file->bytes);
    if (!file->failed)
        ckpt_h5_number(
            file, ckpt_lookup3(file->data + begin, file->bytes - begin), 4);
}

/* --- heap --- */

/* A collection below the least size is filled up with a free object. */
void ckpt_h5_heap_end(struct ckpt_h5 *file)
{
    if (file->heap == 0)
        return;
    size_t bytes = file->bytes - file->heap;
    if (bytes + HEAP_OBJECT_BYTES <= HEAP_BYTES_MIN) {
        ckpt_h5_zeros(file, 8);
        ckpt_h5_number(file, HEAP_BYTES_MIN - bytes, 8);
        ckpt_h5_zeros(file, HEAP_BYTES_MIN - bytes - HEAP_OBJECT_BYTES);
    } else if (bytes < HEAP_BYTES_MIN) {
        ckpt_h5_zeros(file, HEAP_BYTES_MIN - bytes);
    }
    ckpt_h5_set(file, file->heap + 8, file->bytes - file->heap, 8);
    file->heap = 0;
}

static void heap_begin(struct ckpt_h5 *file)
{
    file->heap = file->bytes;
    file->heap_objects = 0;
    ckpt_h5_put(file, "GCOL", 4);
    ckpt_h5_number(file, 1, 4);
    ckpt_h5_zeros(file, 8);
}

struct ckpt_h5_object ckpt_h5_object_begin(struct ckpt_h5 *file)
{
    if (file->heap != 0 && file->bytes - file->heap > HEAP_BYTES_MAX)
        ckpt_h5_heap_end(file);
    if (file->heap == 0)
        heap_begin(file);
    struct ckpt_h5_object object = { .heap = file->heap,
                                     .index = ++file->heap_objects };
    ckpt_h5_number(file, object.index, 8);
    ckpt_h5_zeros(file, 8);
    object.begin = file->bytes;
    return object;
}

void ckpt_h5_object_end(struct ckpt_h5 *file, struct ckpt_h5_object *object)
{
    assert(object->heap == file->heap && object->begin <= file->bytes);
    object->bytes = file->bytes - object->begin;
    ckpt_h5_set(file, object->begin - 8, object->bytes, 8);
    ckpt_h5_zeros(file, (8 - object->bytes % 8) % 8);
}

/* --- headers --- */

size_t ckpt_h5_header_begin(struct ckpt_h5 *file)
{
    size_t at = file->bytes;
    ckpt_h5_put(file, "OHDR", 4);
    ckpt_h5_number(file, 2, 1); /* version */
    ckpt_h5_number(file, 2, 1); /* four bytes of size */
    ckpt_h5_number(file, 0, 4);
    return at;
}

void ckpt_h5_header_end(struct ckpt_h5 *file, size_t at)
{
    size_t bytes = file->bytes - at - HEADER_PREFIX_BYTES;
    ckpt_h5_set(file, at + HEADER_PREFIX_BYTES - 4, bytes, 4);
    ckpt_h5_checksum(file, at);
}

void ckpt_h5_message(struct ckpt_h5 *file, enum ckpt_h5_message kind,
                     size_t bytes, unsigned flags)
{
    assert(bytes <= UINT16_MAX);
    ckpt_h5_number(file, kind, 1);
    ckpt_h5_number(file, bytes, 2);
    ckpt_h5_number(file, flags, 1);
}

/* Two's complement, little-endian. */
static void put_integer_type(struct ckpt_h5 *file, size_t bytes, bool sign)
{
    ckpt_h5_number(file, 0x10, 1);
    ckpt_h5_number(file, sign ? 0x08 : 0, 3);
    ckpt_h5_number(file, bytes, 4);
    ckpt_h5_number(file, 0, 2);
    ckpt_h5_number(file, bytes * 8, 2);
}

/* An IEEE-like layout: sign, exponent, mantissa with its first bit implied. */
static void put_float_type(struct ckpt_h5 *file, size_t bytes,
                           unsigned exponent, uint32_t bias)
{
    unsigned bits = (unsigned)bytes * 8, mantissa = bits - 1 - exponent;
    ckpt_h5_number(file, 0x11, 1);
    ckpt_h5_number(file, 0x20, 1);
    ckpt_h5_number(file, bits - 1, 2);
    ckpt_h5_number(file, bytes, 4);
    ckpt_h5_number(file, 0, 2);
    ckpt_h5_number(file, bits, 2);
    ckpt_h5_number(file, mantissa, 1); /* where the exponent begins */
    ckpt_h5_number(file, exponent, 1);
    ckpt_h5_number(file, 0, 1);
    ckpt_h5_number(file, mantissa, 1);
    ckpt_h5_number(file, bias, 4);
}

static const struct {
    unsigned exponent; /* bits; 0: an integer */
    uint32_t bias;
    uint64_t fill;
} types[] = {
    [DTYPE_F32] = { 8, 127, 0x7fc00000 },
    [DTYPE_BF16] = { 8, 127, 0x7fc0 },
    [DTYPE_I32] = { 0, 0, 0x80000000 },
    [DTYPE_F64] = { 11, 1023, 0x7ff8000000000000 },
    [DTYPE_U8] = { 0, 0, 0 },
};

void ckpt_h5_datatype(struct ckpt_h5 *file, enum dtype dtype)
{
    size_t bytes = dtype_bytes(dtype);
    bool real = types[dtype].exponent > 0;
    ckpt_h5_message(file, CKPT_H5_DATATYPE,
                    real ? FLOAT_TYPE_BYTES : INTEGER_TYPE_BYTES,
                    CKPT_H5_CONSTANT);
    if (real)
        put_float_type(file, bytes, types[dtype].exponent, types[dtype].bias);
    else
        put_integer_type(file, bytes, dtype != DTYPE_U8);
}

void ckpt_h5_fill(struct ckpt_h5 *file, enum dtype dtype)
{
    size_t bytes = dtype_bytes(dtype);
    ckpt_h5_message(file, CKPT_H5_FILL, 6 + bytes, CKPT_H5_CONSTANT);
    ckpt_h5_number(file, 3, 1);    /* version */
    ckpt_h5_number(file, 0x2a, 1); /* late, if set; there is a value */
    ckpt_h5_number(file, bytes, 4);
    ckpt_h5_number(file, types[dtype].fill, bytes);
}

void ckpt_h5_link(struct ckpt_h5 *file, const char *name, size_t length,
                  uint64_t address)
{
    ckpt_h5_message(file, CKPT_H5_LINK, 12 + length, 0);
    ckpt_h5_number(file, 1, 1); /* version */
    ckpt_h5_number(file, 1, 1); /* two bytes of length */
    ckpt_h5_number(file, length, 2);
    ckpt_h5_put(file, name, length);
    ckpt_h5_number(file, address, 8);
}

/* --- attributes --- */

/* All but type, space and value. count -1: a scalar. */
static void begin_attribute(struct ckpt_h5 *file, const char *name,
                            size_t type_bytes, size_t bytes, int count)
{
    assert(count >= -1);
    size_t length = strlen(name) + 1, space = count < 0 ? 4 : 12;
    ckpt_h5_message(file, CKPT_H5_ATTRIBUTE,
                    9 + length + type_bytes + space + bytes, 0);
    ckpt_h5_number(file, 3, 2); /* version, flags */
    ckpt_h5_number(file, length, 2);
    ckpt_h5_number(file, type_bytes, 2);
    ckpt_h5_number(file, space, 2);
    ckpt_h5_number(file, 1, 1); /* UTF-8 */
    ckpt_h5_put(file, name, length);
}

static void put_space(struct ckpt_h5 *file, int count)
{
    ckpt_h5_number(file, 2, 1); /* version */
    ckpt_h5_number(file, count >= 0, 1);
    ckpt_h5_number(file, 0, 1);
    ckpt_h5_number(file, count >= 0, 1); /* simple, or a scalar */
    if (count >= 0)
        ckpt_h5_number(file, (uint64_t)count, 8);
}

void ckpt_h5_attribute_integer(struct ckpt_h5 *file, const char *name,
                               int64_t value)
{
    begin_attribute(file, name, INTEGER_TYPE_BYTES, 8, -1);
    put_integer_type(file, 8, true);
    put_space(file, -1);
    ckpt_h5_number(file, (uint64_t)value, 8);
}

void ckpt_h5_attribute_real(struct ckpt_h5 *file, const char *name,
                            double value)
{
    begin_attribute(file, name, FLOAT_TYPE_BYTES, 8, -1);
    put_float_type(file, 8, types[DTYPE_F64].exponent, types[DTYPE_F64].bias);
    put_space(file, -1);
    ckpt_h5_put(file, &value, 8);
}

void ckpt_h5_attribute_boolean(struct ckpt_h5 *file, const char *name,
                               bool value)
{
    static const char names[] = "FALSE\0TRUE";
    begin_attribute(file, name, 8 + INTEGER_TYPE_BYTES + sizeof names + 2, 1,
                    -1);
    ckpt_h5_number(file, 0x38, 1); /* an enumeration, version 3 */
    ckpt_h5_number(file, 2, 3);    /* of two members */
    ckpt_h5_number(file, 1, 4);
    put_integer_type(file, 1, true);
    ckpt_h5_put(file, names, sizeof names);
    ckpt_h5_number(file, 0, 1);
    ckpt_h5_number(file, 1, 1);
    put_space(file, -1);
    ckpt_h5_number(file, value, 1);
}

void ckpt_h5_attribute_texts(struct ckpt_h5 *file, const char *name,
                             const struct ckpt_h5_object *texts, int count)
{
    size_t number = count < 0 ? 1 : (size_t)count;
    begin_attribute(file, name, TEXT_TYPE_BYTES, number * TEXT_BYTES, count);
    ckpt_h5_number(file, 0x19, 1);   /* of variable length, version 1 */
    ckpt_h5_number(file, 0x0101, 3); /* a string of UTF-8 */
    ckpt_h5_number(file, TEXT_BYTES, 4);
    put_integer_type(file, 1, false);
    put_space(file, count);
    for (size_t i = 0; i < number; i++) {
        ckpt_h5_number(file, texts[i].bytes, 4);
        ckpt_h5_number(file, texts[i].heap, 8);
        ckpt_h5_number(file, texts[i].index, 4);
    }
}

void ckpt_h5_superblock(struct ckpt_h5 *file, uint64_t root)
{
    size_t end = file->bytes;
    assert(file->failed || end >= CKPT_H5_SUPERBLOCK_BYTES);
    file->bytes = 0;
    ckpt_h5_put(file, "\x89HDF\r\n\x1a\n", 8);
    ckpt_h5_number(file, 3, 1); /* version */
    ckpt_h5_number(file, 8, 1); /* bytes of an offset */
    ckpt_h5_number(file, 8, 1); /* bytes of a length */
    ckpt_h5_number(file, 0, 1);
    ckpt_h5_number(file, 0, 8);
    ckpt_h5_number(file, CKPT_H5_UNDEFINED, 8);
    ckpt_h5_number(file, end, 8);
    ckpt_h5_number(file, root, 8);
    ckpt_h5_checksum(file, 0);
    file->bytes = end;
}

static uint32_t rotate(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

uint32_t ckpt_lookup3(const unsigned char *data, size_t bytes)
{
    uint32_t a = 0xdeadbeef + (uint32_t)bytes, b = a, c = a;
    while (bytes > 0) {
        uint32_t words[3] = { 0 };
        size_t part = bytes < sizeof words ? bytes : sizeof words;
        memcpy(words, data, part);
        a += words[0], b += words[1], c += words[2];
        data += part;
        bytes -= part;
        if (bytes == 0) {
            c ^= b, c -= rotate(b, 14);
            a ^= c, a -= rotate(c, 11);
            b ^= a, b -= rotate(a, 25);
            c ^= b, c -= rotate(b, 16);
            a ^= c, a -= rotate(c, 4);
            b ^= a, b -= rotate(a, 14);
            c ^= b, c -= rotate(b, 24);
        } else {
            a -= c, a ^= rotate(c, 4), c += b;
            b -= a, b ^= rotate(a, 6), a += c;
            c -= b, c ^= rotate(b, 8), b += a;
            a -= c, a ^= rotate(c, 16), c += b;
            b -= a, b ^= rotate(a, 19), a += c;
            c -= b, c ^= rotate(b, 4), b += a;
        }
    }
    return c;
}
