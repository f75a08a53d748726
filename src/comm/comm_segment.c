/* Keeps /dev/shm clean: DESIGN.md in this folder says what was found. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/comm/comm_impl.h"

/* OpenMPI 4 and OpenMPI 5. */
static const char *const variables[] = {
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
};
#define VARIABLES (sizeof variables / sizeof variables[0])

void comm_segment_create(struct comm_segment *segment)
{
    memset(segment, 0, sizeof *segment);
    for (size_t i = 0; i < VARIABLES; i++) {
        if (getenv(variables[i]) != NULL)
            return;
    }
    /* Without /dev/shm OpenMPI finds another way, or says why not. */
    char path[] = "/dev/shm/tessera-XXXXXX";
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
