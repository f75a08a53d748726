/* The checksums that an index has for a file, computed together as its bytes
 * pass, so that nothing is read for each of them. Those that
 * src/data/checksum.h does not know are left out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"
#include "src/data/checksum.h"
#include "src/data/mds_index.h"

struct mds_sums;

/* `hash` is lent. */
enum err mds_sums_create(const struct mds_hash *hash, int count,
                         struct mds_sums **out);
void mds_sums_destroy(struct mds_sums *sums);

/* None is known: there is nothing to read for them. */
bool mds_sums_is_empty(const struct mds_sums *sums);

/* The next bytes of the file. */
enum err mds_sums_update(struct mds_sums *sums, const void *data, size_t bytes);

/* After the last, either: the hex of one of them, as they are known here. */
enum err mds_sums_finish(struct mds_sums *sums, int number,
                         char hex[CHECKSUM_TEXT_BYTES]);

/* Or ERR_DATA "its sha1 should be 12 and is 34" for the first that
 * differs. */
enum err mds_sums_compare(struct mds_sums *sums);
