/* CRC32C (Castagnoli), as in iSCSI and ext4: crc32c("123456789") = e3069283.
 * Uses the SSE4.2 instruction where the processor has it (four interleaved
 * streams), a table otherwise; same result. */
#ifndef TESSERA_BASE_CRC32C_H
#define TESSERA_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continue `crc` (0 to begin) over bytes. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
/* The table implementation, for tests. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes);

#endif
