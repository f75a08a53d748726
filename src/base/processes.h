/* The processes of a machine, as /proc tells them. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "src/base/err.h"

#define PROCESSES_NOBODY 65534 /* an account of nobody, beyond the people's */

struct process {
    pid_t pid, parent;
    uid_t user, effective;
    char state;    /* 'R', 'S', 'D', 'Z', ... */
    char name[16]; /* its first 15 letters */
};

/* All below ROOT/proc that are still there when they are looked at; the caller
 * frees *list, which after an error is NULL. */
enum err processes_list(const char *root, struct process **list, size_t *count);
/* What a process's or a thread's stat file below /proc has behind the name, which
 * may hold blanks and parentheses: "S 1 ...". NULL: there is none. */
const char *processes_stat(const char *path, char *text, size_t size);
/* The first number of accounts of people, UID_MIN of ROOT/etc/login.defs. */
uid_t processes_first_user(const char *root);
