/* The characters that byte-level files write bytes as: a printable one is
 * itself, others follow from U+0100 on, so that a blank is U+0120. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_alphabet {
    int16_t byte[324]; /* by character; -1: it stands for none */
};

void byte_alphabet_fill(struct byte_alphabet *alphabet);

/* The bytes that a text stands for, at most as many as it has, into out;
 * false: a character stands for none. */
bool byte_alphabet_bytes(const struct byte_alphabet *alphabet,
                         const uint8_t *text, size_t bytes, uint8_t *out,
                         size_t *out_bytes);
