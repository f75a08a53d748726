/* What lies at an address, s3://BUCKET/PREFIX, for who reads files: a copy of it in a
 * folder of this node, and the one seam by which MODELs, checkpoints and runs come
 * from an object store.
 *
 * An address is of a checkpoint's folder, a mirror (src/mirror/mirror.h), a run directory
 * that was copied there, a Hugging Face folder or a file NAME.gguf. Of a mirror or a
 * run the newest whole checkpoint is meant, with #STEP or #best behind it that one, or
 * the one whose state has the least loss; what else follows a "#" is kept for who opens
 * the copy.
 *
 * The processes of a user on a node share a copy (src/data/remote/cache.h): in TMPDIR
 * or /tmp, one fetches while the others wait, what a killed one has left is gone on
 * with, and the last one removes it; what nobody has had for an hour goes with the next
 * one. Of a checkpoint each node takes all files, the optimizer's too. Room for all of it is looked for before. Files
 * are as long as the list said, and the list is the same afterwards; that a checkpoint
 * is sound is seen by its CRCs when it is read. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

/* WORD://... */
bool home_is(const char *given);

/* ERR_USAGE for an address that no copy can be made of; it is not said where it may
 * have a password. For who says or keeps it before it is opened. */
enum err home_check(const char *given);

/* For all that follow: seconds that a file may take (300), of data.remote_deadline,
 * and whether to end soon (NULL: never). */
void home_terms(double deadline_s, bool (*ended)(void));

enum home_what {
    HOME_ALL,
    HOME_HEADS, /* of a checkpoint MANIFEST.json; other files are of their length */
    HOME_RUN,  /* the same of all checkpoints there, as a run directory */
    HOME_BEST, /* of all what tells which is best, and no other file */
    HOME_FILES /* whatever they are: an object, or all below a prefix */
};

/* Where the copy is, and what exactly it is of, an address that is opened without
 * looking for a newer one; both with a "#NAME" behind them if one was given. It
 * stays until home_end(), for any number of calls by any thread. ERR_USAGE: no such
 * address can be read; ERR_DATA, ERR_CHECKPOINT: nothing is there, or no whole
 * thing; ERR_SPACE: no room; ERR_IO: it does not come. */
enum err home_open(const char *given, enum home_what what,
                   char path[FSIO_PATH_MAX], char exact[FSIO_PATH_MAX]);
/* Let go of all copies; also done at exit. */
void home_end(void);

/* What people are told of a path: of a copy, or a checkpoint of one, its address;
 * else the path. */
const char *home_where(const char *path, char out[FSIO_PATH_MAX]);
