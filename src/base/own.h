/* Folders of this user alone, also below those that everybody may write to (/tmp,
 * /dev/shm), where whoever is first has a name.
 *
 * A path is walked by descriptors. Down to the first folder that others may write
 * to, it is what administrator and user have made of it, links included. From
 * there on a folder must be ours and closed to others' writing, or root's; nothing
 * is followed. Where the name directly below is not there, or not ours, a folder
 * PATH.UID.RANDOM beside it is taken: the one that an earlier process of this user
 * has taken on this machine, or a new one. Its name cannot be foretold, all
 * processes of the user find the same, and what strangers lay there is passed
 * over.
 *
 * Everything in it is reached by own.at, the way through the descriptor: whoever
 * moves or replaces what the path names changes nothing. Texts of errors and logs
 * say the path. */
#pragma once

#include "src/base/err.h"
#include "src/base/fsio.h"

struct own {
    int fd;                   /* -1: closed */
    char at[32];              /* "/proc/self/fd/FD" */
    char path[FSIO_PATH_MAX]; /* for people */
    int strangers;            /* names like it that are not ours */
};

/* Open the folder at an absolute path, making it (mode 0700) and what it lies in.
 * ERR_SPACE where it is not ours, or others may write to it, or a folder on the
 * way to it, below one that everybody may write to, is so. */
enum err own_open(const char *path, struct own *out);
/* One folder in an open one; out->fd stays -1 where that has been removed. */
enum err own_open_in(const struct own *parent, const char *name,
                     struct own *out);
/* For a struct that one of them has filled, or whose fd is -1. */
void own_close(struct own *own);

/* rm -r of a folder in an open one, by descriptors; only if it is ours. What is
 * not there is fine. `parent` is for texts. */
enum err own_remove(int parent_fd, const char *parent, const char *name);
