/* What would survive a power cut, in the strictest reading of POSIX: contents
 * by fsync of the file, names by fsync of their folder, and nothing else. Files
 * have ids because the file system uses inode numbers again. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/soak/shim.h"

#define ROOM (PATH_MAX / 4)

static char store_dir[ROOM], root_dir[ROOM];
static long ids;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* This file's own calls go through the library too and must not be seen. */
static _Thread_local bool inside;

static bool ours(const char *path)
{
    size_t length = strlen(root_dir);
    return length > 0 && strncmp(path, root_dir, length) == 0 &&
           (path[length] == '\0' || path[length] == '/');
}

/* The id of an inode; given anew if `fresh` or never seen. */
static long id_of(ino_t inode, bool fresh)
{
    char path[PATH_MAX], text[32] = "";
    long id = -1;
    snprintf(path, sizeof path, "%s/ino/%llu", store_dir,
             (unsigned long long)inode);
    FILE *file = fresh ? NULL : fopen(path, "r");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL)
            id = strtol(text, NULL, 10);
        fclose(file);
    }
    if (id >= 0)
        return id;
    id = (long)getpid() * 100000 + ids++;
    file = fopen(path, "w");
    if (file == NULL)
        abort();
    fprintf(file, "%ld", id);
    fclose(file);
    return id;
}

static FILE *record(const char *kind, long id)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/%ld", store_dir, kind, id);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        abort();
    return file;
}

static void store_list(const char *path, long id)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    FILE *list = record("list", id);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fprintf(list, "%ld %s\n", id_of(entry->d_ino, false),
                    entry->d_name);
    fclose(list);
    closedir(folder);
}

static void store_data(const char *path, long id)
{
    char buffer[65536];
    size_t bytes;
    FILE *from = fopen(path, "r");
    if (from == NULL)
        return;
    FILE *to = record("data", id);
    while ((bytes = fread(buffer, 1, sizeof buffer, from)) > 0)
        fwrite(buffer, 1, bytes, to);
    fclose(to);
    fclose(from);
}

static void store_path(const char *path, bool fresh, bool synced)
{
    struct stat status;
    if (inside || !ours(path))
        return;
    pthread_mutex_lock(&mutex);
    inside = true;
    if (stat(path, &status) == 0) {
        long id = id_of(status.st_ino, fresh);
        if (synced && S_ISDIR(status.st_mode))
            store_list(path, id);
        else if (synced)
            store_data(path, id);
    }
    inside = false;
    pthread_mutex_unlock(&mutex);
}

void shim_store_made(const char *path)
{
    store_path(path, true, false);
}

void shim_store_synced(const char *path)
{
    store_path(path, false, true);
}

static int begin_entry(const char *path, const struct stat *status, int kind,
                       struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    shim_store_synced(path);
    return 0;
}

void shim_store_begin(const char *store, const char *root)
{
    snprintf(store_dir, sizeof store_dir, "%s", store);
    snprintf(root_dir, sizeof root_dir, "%s", root);
    nftw(root, begin_entry, 16, FTW_PHYS);
}
