/* One file of each process is read, status, in which a name has its line breaks
 * escaped: nobody can write a line of it. */
#include "src/base/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/sysfile.h"

#define STATUS_BYTES 4096 /* what is needed is at its beginning */
#define FIRST_USER 1000

static bool read_one(int proc, const char *number, struct process *out)
{
    char path[32], text[STATUS_BYTES];
    snprintf(path, sizeof path, "%.20s/status", number);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    const char *state = strstr(text, "\nState:");
    const char *parent = strstr(text, "\nPPid:");
    const char *user = strstr(text, "\nUid:");
    *out = (struct process){ .pid = atoi(number) };
    if (strncmp(text, "Name:\t", 6) != 0 || state == NULL || parent == NULL ||
        user == NULL)
        return false;
    snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(text + 6, "\n"),
             text + 6);
    return sscanf(state, "\nState: %c", &out->state) == 1 &&
           sscanf(parent, "\nPPid: %d", &out->parent) == 1 &&
           sscanf(user, "\nUid: %u %u", &out->user, &out->effective) == 2;
}

enum err processes_list(const char *root, struct process **list, size_t *count)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    size_t room = 0;
    DIR *proc = NULL;
    *list = NULL;
    *count = 0;
    TRY_OUT(fsio_path(path, "%s/proc", root));
    proc = opendir(path);
    if (proc == NULL)
        TRY_OUT(err_errno("%s: open", path));
    for (const struct dirent *e; (e = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        TRY_OUT(array_room(list, &room, *count + 1));
        *count += read_one(dirfd(proc), e->d_name, &(*list)[*count]);
    }
out:
    if (proc != NULL)
        closedir(proc);
    if (rc != ERR_OK) {
        free(*list);
        *list = NULL;
        *count = 0;
    }
    return rc;
}

const char *processes_stat(const char *path, char *text, size_t size)
{
    (void)sysfile_text(text, size, "%s", path);
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' ? name_end + 2 : NULL;
}

uid_t processes_first_user(const char *root)
{
    char path[FSIO_PATH_MAX], line[256];
    unsigned uid = FIRST_USER;
    FILE *file = fsio_path(path, "%s/etc/login.defs", root) == ERR_OK
                     ? fopen(path, "re")
                     : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "UID_MIN %u", &uid);
    if (file != NULL)
        fclose(file);
    return uid;
}
