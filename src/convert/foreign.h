/* Configurations of other trainers, made into ours: a file of theirs is read as
 * pairs "a.b.c" and value (foreign_read.c), of which foreign.table says what they are
 * here, or why they are nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define FOREIGN_TEXT_BYTES 1024

struct foreign_pair {
    char *key, *value; /* lists count: "optimizer.betas.0"; null is "" */
    int line;
    bool done; /* something has become of it */
};

struct foreign_file {
    const char *path;
    struct foreign_pair *pairs;
    size_t count, capacity;
};

/* A subset of YAML (maps, lists, scalars, flow, comments), TOML without arrays of
 * tables, or JSON, told by its first line. ERR_USAGE names the line of what is wrong
 * or beyond that. */
enum err foreign_read(const char *path, struct foreign_file *out);
void foreign_free(struct foreign_file *file);
struct foreign_pair *foreign_find(const struct foreign_file *file,
                                  const char *key);

/* The configuration at `path` as libconfig text, *text malloc'ed. `name`: the
 * trainer, NULL: the one that has most of the keys; ranks: of its run, 0: unknown. */
enum err foreign_convert(const char *path, const char *name, int64_t ranks,
                         char **text);
