/* Keeps /dev/shm clean. A file there has a name and is memory: after a SIGKILL it
 * stays until somebody removes it, and a node whose /dev/shm is full starts no
 * job any more. But a mapping outlives its name. So OpenMPI puts the files that it shares in a node into a
 * folder of ours there, which is removed as soon as the ranks have opened them.
 * DESIGN.md in this folder says what was found. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/own.h"
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

/* The job's check makes one folder for all ranks of a node and names it in the
 * environment; where that is not ours any more, MPI would put its memory into
 * somebody else's hands. What the user has named is the user's affair. */
static bool is_taken(const char *path)
{
    struct stat status;
    static const char made[] = SHM "/tessera.";
    return strncmp(path, made, strlen(made)) == 0 &&
           (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) ||
            status.st_uid != geteuid() ||
            (status.st_mode & (S_IWGRP | S_IWOTH)) != 0);
}

/* Says it once for a node. */
static void tell_taken(const char *path)
{
    const char *place = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    if (place == NULL)
        place = getenv("SLURM_LOCALID");
    if (place == NULL || strcmp(place, "0") == 0)
        log_warn("%s is not ours: MPI shares its memory elsewhere", path);
}

/* A rank killed in the moments in which its folder exists leaves it behind. */
static void remove_stale(void)
{
    DIR *shm = opendir(SHM);
    const struct dirent *entry;
    while (shm != NULL && (entry = readdir(shm)) != NULL) {
        struct stat status;
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
            fstatat(dirfd(shm), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ==
                0 &&
            clock_wall() - (double)status.st_mtim.tv_sec >= STALE_S &&
            own_remove(dirfd(shm), SHM, entry->d_name) != ERR_OK)
            log_warn("%s", err_text());
    }
    if (shm != NULL)
        closedir(shm);
}

void comm_segment_create(struct comm_segment *segment)
{
    memset(segment, 0, sizeof *segment);
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *given = getenv(variables[i]);
        if (given != NULL && !is_taken(given))
            return;
        if (given != NULL) {
            tell_taken(given);
            unsetenv("OMPI_MCA_osc_sm_backing_directory");
        }
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
    int shm = open(SHM, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (shm >= 0 &&
        own_remove(shm, SHM, strrchr(segment->path, '/') + 1) != ERR_OK)
        log_warn("%s", err_text());
    fsio_close(shm);
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
