/* Bytes written as characters. */
#include "src/text/tokenizer/byte_alphabet.h"

#include "src/text/unicode.h"

void byte_alphabet_fill(struct byte_alphabet *alphabet)
{
    size_t count = sizeof alphabet->byte / sizeof alphabet->byte[0];
    size_t next = 256;
    for (size_t i = 0; i < count; i++)
        alphabet->byte[i] = -1;
    for (int16_t b = 0; b < 256; b++) {
        bool shown =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        alphabet->byte[shown ? (size_t)b : next++] = b;
    }
}

bool byte_alphabet_bytes(const struct byte_alphabet *alphabet,
                         const uint8_t *text, size_t bytes, uint8_t *out,
                         size_t *out_bytes)
{
    size_t count = 0;
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        uint32_t point = unicode_at(text + i, &length);
        if (point >= sizeof alphabet->byte / sizeof alphabet->byte[0] ||
            alphabet->byte[point] < 0)
            return false;
        out[count++] = (uint8_t)alphabet->byte[point];
    }
    *out_bytes = count;
    return true;
}
