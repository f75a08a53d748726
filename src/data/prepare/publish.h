/* A folder that appears complete or not at all: it is built under a hidden name
 * beside its place, and one rename puts it there. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

struct publish {
    char path[FSIO_PATH_MAX];     /* the folder's place */
    char parent[FSIO_PATH_MAX];   /* the folder that it lies in */
    char building[FSIO_PATH_MAX]; /* where to write; "": nothing to remove */
    char work[FSIO_PATH_MAX];     /* PARENT/.NAME.tokenize, whoever makes it */
    bool again;                   /* building is in it */
    bool keep;                    /* what is in it, at the end */
    bool replace;
};

/* Set the names, and no more: path, parent and work. */
enum err publish_name(struct publish *publish, const char *path);

/* Make PARENT/.NAME.tmp.HOST.PID.N, and remove those that processes who are
 * gone have left. ERR_USAGE when `path` exists, unless replace is true and it
 * is empty or a data set of our own making: index.json, a tessera.json that is
 * not of an adopted set, tokenizer.json, shard.NNNNN.mds, nothing else; or
 * train/ and eval/ that are so. Anything else is never removed. */
enum err publish_begin(struct publish *publish, const char *path, bool replace);
/* The same with WORK/set to build in, which may be there already, of an earlier
 * process; publish_name() was called, and the caller has WORK for itself. */
enum err publish_again(struct publish *publish, bool replace);
/* Move it to its place. Of what was there the files that publish_begin() allows
 * are removed; should there be others by now, the old folder stays beside the
 * new one, and the error, ERR_DATA, names it. */
enum err publish_commit(struct publish *publish);
/* Remove what was built, after a commit nothing; and WORK, if something was
 * built there, except with `keep`, which a commit that fails to remove what was
 * replaced sets, too. */
void publish_end(struct publish *publish);
