/* Safetensors of any bytes: a file, or, of bytes that begin with a brace, the
 * index of a folder with two good files. Each is refused, or all that it has
 * can be read. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/formats/safetensors/safetensors.h"

#define READ_ELEMENTS 64 /* of each tensor, at either end */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char folder[64];

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[FSIO_PATH_MAX];
    if (fsio_path(path, "%s/%s", folder, name) != ERR_OK)
        abort();
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes ||
        fclose(file) != 0)
        abort();
}

static void write_good(const char *name, const char *tensor)
{
    char text[256];
    char file[256 + 16] = { 0 };
    int length = snprintf(text, sizeof text,
                          "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],"
                          "\"data_offsets\":[0,8]}}",
                          tensor);
    file[0] = (char)length;
    memcpy(file + 8, text, (size_t)length);
    write_file(name, file, (size_t)length + 16);
}

static void remove_folder(void)
{
    (void)fsio_remove_tree(folder);
}

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/safetensors.XXXXXX",
             base != NULL ? base : "/dev/shm");
    if (mkdtemp(folder) == NULL)
        abort();
    atexit(remove_folder);
    write_good("a.safetensors", "a");
    write_good("b.safetensors", "b");
}

static void read_tensor(const struct safetensors *set,
                        const struct safetensors_tensor *t)
{
    char raw[8 * READ_ELEMENTS];
    float floats[READ_ELEMENTS];
    int64_t count = t->numel < READ_ELEMENTS ? t->numel : READ_ELEMENTS;
    assert(safetensors_find(set, t->name) == t);
    assert(t->dims >= 0 && t->dims <= SAFETENSORS_DIMS_MAX);
    assert(t->bytes == t->numel * safetensors_dtype_bytes(t->dtype));
    assert(safetensors_read(set, t, 0, count, raw) == ERR_OK);
    assert(safetensors_read(set, t, t->numel - count, count, raw) == ERR_OK);
    enum err rc = safetensors_read_f32(set, t, t->numel - count, count, floats);
    assert(rc == ERR_OK || rc == ERR_UNSUPPORTED);
    (void)rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    char path[FSIO_PATH_MAX];
    struct safetensors *set = NULL;
    if (fd < 0) {
        fd = memfd_create("safetensors", MFD_CLOEXEC);
        make_folder();
    }
    if (bytes > 0 && data[0] == '{') {
        write_file(SAFETENSORS_INDEX, data, bytes);
        snprintf(path, sizeof path, "%s", folder);
    } else {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (fd < 0 || ftruncate(fd, 0) != 0 ||
            fsio_pwrite(fd, data, bytes, 0, path) != ERR_OK)
            abort();
    }
    if (safetensors_open(path, &set) != ERR_OK)
        return 0;
    for (int i = 0; i < set->count; i++)
        read_tensor(set, &set->list[i]);
    safetensors_close(set);
    return 0;
}
