/* What a program makes for an address, s3://BUCKET/PREFIX: it is made in a folder of
 * this node, in TMPDIR or /tmp, and put there when it is whole, the file by which
 * readers begin last: whoever reads meets all of it or nothing. */
#pragma once

#include "src/base/err.h"
#include "src/base/fsio.h"

/* Where to make it: *path is `out` itself, or a place that the same address has
 * always, so that what a killed call has left there is gone on with as elsewhere.
 * last: the name of the last file, in whatever folder. ERR_USAGE: it is there already,
 * or cannot be written to; ERR_BUSY: another process makes it. One at a time. */
enum err home_out_begin(const char *out, const char *last, bool (*ended)(void),
                        const char **path);
/* The work's code: puts what was made there, or lets go of it. What does not arrive
 * stays on this node, and the error says where; who calls again makes it anew, and
 * sends no part that is there. It goes after a week, and what a killed call has left
 * with a call of this user that begins an hour later or more. Where
 * several files are last ones, as of two sets, PREFIX/unfinished is there until all
 * are: readers of one set meet it whole, and a new call may go on. */
enum err home_out_end(enum err rc);
