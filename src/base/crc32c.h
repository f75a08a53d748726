/* CRC32C (Castagnoli), as in iSCSI and ext4: crc32c("123456789") = e3069283.
 * Uses the SSE4.2 instruction where the processor has it (four interleaved
 * streams), a table otherwise; same result. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continue `crc` (0 to begin) over bytes. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
/* What a beginning with this sum adds to the sum of the whole when so many bytes
 * follow it: crc32c(0, AB) = crc32c_shift(crc32c(0, A), |B|) ^ crc32c(0, B). So
 * parts can be summed apart and in any order. */
uint32_t crc32c_shift(uint32_t crc, uint64_t bytes);
/* The table implementation, for tests. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes);
