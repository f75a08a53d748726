/* Keeps /dev/shm clean: OpenMPI puts the files that it shares in a node into a
 * folder of ours there, which is removed as soon as the ranks have opened them.
 * DESIGN.md in this folder says what was found. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/comm/comm_impl.h"

/* OpenMPI 4 and OpenMPI 5. */
static const char *const variables[] = {
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
};
#define SHM "/dev/shm"
#define PREFIX "tessera-mpi-"
/* No start takes that long: a folder of this age has lost its process. */
#define STALE_S 3600.0
#define VARIABLES (sizeof variables / sizeof variables[0])

/* A rank killed in the moments in which its folder exists leaves it behind. */
static void remove_stale(void)
{
    DIR *shm = opendir(SHM);
    const struct dirent *entry;
    while (shm != NULL && (entry = readdir(shm)) != NULL) {
        char path[FSIO_PATH_MAX];
        struct stat status;
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 ||
            fsio_path(path, SHM "/%s", entry->d_name) != ERR_OK ||
            lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) ||
            status.st_uid != geteuid() ||
            clock_wall() - (double)status.st_mtim.tv_sec < STALE_S)
            continue;
        if (fsio_remove_tree(path) != ERR_OK)
            log_warn("%s", err_text());
    }
    if (shm != NULL)
        closedir(shm);
}

void comm_segment_create(struct comm_segment *segment)
{
    memset(segment, 0, sizeof *segment);
    for (size_t i = 0; i < VARIABLES; i++) {
        if (getenv(variables[i]) != NULL)
            return;
    }
    remove_stale();
    /* Without /dev/shm OpenMPI finds another way, or says why not. */
    char path[] = SHM "/" PREFIX "XXXXXX";
    if (mkdtemp(path) == NULL)
        return;
    memcpy(segment->path, path, sizeof path);
    for (size_t i = 0; i < VARIABLES; i++)
        setenv(variables[i], path, 1);
}

void comm_segment_forget(const struct comm_segment *segment)
{
    for (size_t i = 0; segment->path[0] != '\0' && i < VARIABLES; i++)
        unsetenv(variables[i]);
}

static void list_files(struct comm_segment *segment)
{
    DIR *folder = opendir(segment->path);
    const struct dirent *entry;
    segment->count = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || segment->count == COMM_SEGMENT_FILES ||
            length >= sizeof segment->files[0])
            continue;
        memcpy(segment->files[segment->count++], entry->d_name, length + 1);
    }
    if (folder != NULL)
        closedir(folder);
}

void comm_segment_remove(struct comm_segment *segment)
{
    if (segment->path[0] == '\0')
        return;
    list_files(segment);
    if (fsio_remove_tree(segment->path) != ERR_OK)
        log_warn("%s", err_text());
}

void comm_segment_restore(const struct comm_segment *segment)
{
    if (segment->path[0] == '\0' || mkdir(segment->path, 0700) != 0)
        return;
    for (int i = 0; i < segment->count; i++) {
        char path[sizeof segment->path + sizeof segment->files[0]];
        snprintf(path, sizeof path, "%s/%s", segment->path, segment->files[i]);
        FILE *file = fopen(path, "w");
        if (file != NULL)
            fclose(file);
    }
}
