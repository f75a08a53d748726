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
