#include "tests/soak/victim.h"

#include <dirent.h>
#include <fcntl.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "tests/ckpt_fixture.h"

struct flips {
    struct comm *comm;
    char run[FSIO_PATH_MAX], dir[FSIO_PATH_MAX], bad[FSIO_PATH_MAX];
    long done, missed, misread;
};

/* Put what a load has set aside back in its place. */
static bool put_back(const struct flips *flips)
{
    char reason[FSIO_PATH_MAX];
    return fsio_path(reason, "%s/REASON", flips->bad) == ERR_OK &&
           unlink(reason) == 0 && rename(flips->bad, flips->dir) == 0;
}

/* A file that loading reads must make it fall back; any other may be damaged,
 * but then the contents must be right. */
static void flip_one(struct flips *flips, bool loaded)
{
    int64_t step = -2, values = -2;
    flips->done++;
    flips->missed += fixture_verify(flips->dir) != ERR_CHECKPOINT;
    enum err rc = fixture_load(flips->comm, flips->run, &step, &values);
    bool back = fsio_exists(flips->bad) && put_back(flips);
    bool right = rc == ERR_OK && step == values &&
                 (back ? step == 1 : step == 2 && !loaded);
    flips->misread += !right;
}

static bool flip_file(struct flips *flips, const char *file)
{
    char path[FSIO_PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;
    bool right = true;
    bool loaded = strcmp(file, CKPT_MANIFEST_FILE) == 0 ||
                  strncmp(file, "shard", strlen("shard")) == 0;
    flips->done = flips->missed = flips->misread = 0;
    if (fsio_path(path, "%s/%s", flips->dir, file) != ERR_OK ||
        fsio_read_file(path, 16 << 20, &data, &bytes) != ERR_OK)
        return false;
    for (size_t i = 0; i < bytes * 8 && right; i++) {
        char changed = (char)(data[i / 8] ^ (1 << i % 8));
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        right = fd >= 0 && pwrite(fd, &changed, 1, (off_t)(i / 8)) == 1;
        flip_one(flips, loaded);
        right = right && pwrite(fd, &data[i / 8], 1, (off_t)(i / 8)) == 1;
        close(fd);
    }
    right = right && flips->missed == 0 && flips->misread == 0;
    printf("%s, all %ld bits -> %ld not seen, %ld not set aside%s\n", file,
           flips->done, flips->missed, flips->misread, right ? "" : ", WRONG");
    free(data);
    return right;
}

static bool flip_folder(struct flips *flips)
{
    char names[64][256];
    int count = 0;
    bool right = true;
    DIR *folder = opendir(flips->dir);
    if (folder == NULL)
        return false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL && count < 64;)
        if (entry->d_name[0] != '.')
            snprintf(names[count++], sizeof names[0], "%s", entry->d_name);
    closedir(folder);
    for (int i = 0; i < count; i++)
        right &= flip_file(flips, names[i]);
    return right && count >= 2;
}

/* The smallest that has two tensors: every byte of it costs eight loads. */
int victim_flips(struct comm *comm, const char *folder)
{
    struct flips flips = { .comm = comm };
    int64_t step, values;
    enum err rc = fsio_path(flips.run, "%s/run", folder);
    if (rc == ERR_OK)
        rc = fixture_save(comm, flips.run, 1, 1, 0);
    if (rc == ERR_OK)
        rc = fixture_save(comm, flips.run, 2, 2, 0);
    if (rc == ERR_OK)
        rc = ckpt_index_path(flips.dir, flips.run, 2);
    if (rc == ERR_OK)
        rc = fsio_path(flips.bad, "%s/checkpoints/.bad-step-%09d.0", flips.run,
                       2);
    if (rc != ERR_OK) {
        printf("set up: %s, WRONG\n", err_text());
        return 1;
    }
    bool right = flip_folder(&flips);
    rc = fixture_load(comm, flips.run, &step, &values);
    if (rc != ERR_OK || step != 2 || values != 2) {
        printf("not the same after all flips, WRONG\n");
        right = false;
    }
    return right ? 0 : 1;
}
