/* Whether a file of an MDS data set is what its index says: there, regular, as
 * long, and with the same checksums. ERR_DATA names the file and what to do. */
#pragma once

#include "src/base/err.h"
#include "src/data/set/dataset.h"
#include "src/data/mds/mds_index.h"

/* There, regular and as long. */
enum err mds_check_size(const char *path, const struct mds_file *file);

/* All its checksums that src/data/codec/checksum.h knows, in one pass. `path`: for
 * messages. watch NULL: unwatched. */
enum err mds_check_hashes(int fd, const char *path, const struct mds_file *file,
                          const struct dataset_watch *watch);

/* Its SHA-256, whatever the index says. */
enum err mds_check_sha256(int fd, const char *path, const struct mds_file *file,
                          char hex[65]);

/* The file's bytes, all of them: ERR_DATA when it became shorter meanwhile. */
enum err mds_check_pread(int fd, const char *path, const struct mds_file *file,
                         void *data, size_t bytes, int64_t offset);
