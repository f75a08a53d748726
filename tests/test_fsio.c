#include "src/base/fsio.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/tap.h"

static const char *folder;

/* A path below the test's folder; the buffer is good until the next call but
 * three. */
static const char *at(const char *name)
{
    static char paths[4][FSIO_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    if (fsio_path(path, "%s/%s", folder, name) != ERR_OK)
        tap_ok(false, "path of %s", name);
    return path;
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static bool holds(const char *path, const char *want)
{
    char *data = NULL;
    size_t bytes = 0;
    bool same = fsio_read_file(path, 1 << 20, &data, &bytes) == ERR_OK &&
                bytes == strlen(want) && memcmp(data, want, bytes + 1) == 0;
    free(data);
    return same;
}

/* A failure has the code, and names the path. */
static void fails(enum err got, enum err want, const char *path,
                  const char *what)
{
    tap_is_int(got, want, "%s: code", what);
    if (!tap_ok(strstr(err_text(), path) != NULL, "%s: names the path", what))
        tap_note("text: %s", err_text());
}

static void test_path(void)
{
    char path[FSIO_PATH_MAX];
    char longer[FSIO_PATH_MAX + 10];
    tap_is_int(fsio_path(path, "%s/%d", "a", 7), ERR_OK, "join a path");
    tap_is_str(path, "a/7", "joined path");
    memset(longer, 'x', sizeof longer);
    longer[FSIO_PATH_MAX - 1] = '\0';
    tap_is_int(fsio_path(path, "%s", longer), ERR_OK, "the longest path");
    tap_is_int(fsio_path(path, "%sx", longer), ERR_USAGE, "a longer one");
    tap_ok(strstr(err_text(), "longer than 1023") != NULL, "limit is told");
}

static void test_write_read(void)
{
    const char *path = at("file");
    tap_is_int(fsio_write_atomic(path, "first", 5), ERR_OK, "write a file");
    tap_ok(holds(path, "first"), "it reads back, NUL appended");
    tap_is_int(fsio_write_atomic(path, "second one", 10), ERR_OK, "overwrite");
    tap_ok(holds(path, "second one"), "it holds the new bytes");
    tap_is_int(fsio_write_atomic(path, "", 0), ERR_OK, "write an empty file");
    tap_ok(holds(path, ""), "it is empty");
    tap_is_int(count_entries(folder), 1, "no temporary stays");

    size_t bytes = 3000000;
    char *large = malloc(bytes);
    char *data = NULL;
    size_t got = 0;
    if (!tap_ok(large != NULL, "memory"))
        return;
    for (size_t i = 0; i < bytes; i++)
        large[i] = (char)(i * 31 >> 3);
    tap_is_int(fsio_write_atomic(path, large, bytes), ERR_OK, "write 3 MB");
    tap_is_int(fsio_read_file(path, bytes, &data, &got), ERR_OK,
               "read exactly the limit");
    tap_ok(got == bytes && memcmp(large, data, bytes) == 0, "same bytes");
    free(data);
    fails(fsio_read_file(path, bytes - 1, &data, &got), ERR_DATA, path,
          "one byte over the limit");
    tap_ok(data == NULL && got == 0, "a failed read gives nothing");
    free(large);

    tap_is_int(fsio_read_file("/proc/self/status", 1 << 20, &data, &got),
               ERR_OK, "read a file that says it has no size");
    tap_ok(data != NULL && strstr(data, "Name:") != NULL, "it has content");
    free(data);
    fails(fsio_read_file("/proc/self/status", 10, &data, &got), ERR_DATA,
          "/proc/self/status", "such a file over the limit");
}

static void test_read_failures(void)
{
    char *data = NULL;
    size_t bytes = 0;
    fails(fsio_read_file(at("none"), 9, &data, &bytes), ERR_DATA, "none",
          "missing file");
    tap_ok(strstr(err_text(), "no such file") != NULL, "missing file is told");
    fails(fsio_read_file(at("file/none"), 9, &data, &bytes), ERR_DATA, "none",
          "a path below a file");
    fails(fsio_read_file(folder, 9, &data, &bytes), ERR_DATA, folder,
          "a folder");
    tap_ok(strstr(err_text(), "folder") != NULL, "folder is told");
}

static void test_write_failures(void)
{
    const char *path = at("kept");
    tap_is_int(fsio_write_atomic(path, "old", 3), ERR_OK, "write a file");
    int before = count_entries(folder);

    /* a limit on file sizes makes the write fail half way */
    struct rlimit saved;
    getrlimit(RLIMIT_FSIZE, &saved);
    struct rlimit tight = { 1000, saved.rlim_max };
    char data[5000];
    memset(data, 'n', sizeof data);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tight);
    enum err rc = fsio_write_atomic(path, data, sizeof data);
    setrlimit(RLIMIT_FSIZE, &saved);
    signal(SIGXFSZ, SIG_DFL);
    fails(rc, ERR_IO, path, "a write that fails half way");
    tap_ok(holds(path, "old"), "the old file is untouched");
    tap_is_int(count_entries(folder), before, "no temporary stays");

    fails(fsio_write_atomic(at("file/x"), "a", 1), ERR_SPACE, "file/x",
          "write below a file");
    fails(fsio_write_atomic(at("none/x"), "a", 1), ERR_IO, "none/x",
          "write into a missing folder");
    before = count_entries(folder);
    tap_is_int(fsio_mkdirs(at("full/sub")), ERR_OK, "make folders");
    fails(fsio_write_atomic(at("full"), "a", 1), ERR_SPACE, "full",
          "write over a folder");
    tap_is_int(count_entries(folder), before + 1, "no temporary stays");

    if (geteuid() == 0) {
        tap_skip("a folder without write permission: root may write anyway");
        return;
    }
    chmod(at("full"), 0500);
    fails(fsio_write_atomic(at("full/x"), "a", 1), ERR_SPACE, "full/x",
          "write into a read-only folder");
    chmod(at("full"), 0700);
}

/* What others have put where a file goes, or its temporary. */
static void test_strangers(void)
{
    char temporary[300];
    struct stat status;
    tap_ok(symlink("file", at("link")) == 0 &&
               symlink("nowhere", at("dangling")) == 0 &&
               mkfifo(at("fifo"), 0600) == 0,
           "links and a pipe");
    fails(fsio_write_atomic(at("link"), "a", 1), ERR_SPACE, "link",
          "write over a link");
    fails(fsio_write_hint(at("dangling"), "a", 1), ERR_SPACE, "dangling",
          "write over a link to nothing");
    fails(fsio_write_atomic(at("fifo"), "a", 1), ERR_SPACE, "fifo",
          "write over a pipe");
    tap_ok(lstat(at("fifo"), &status) == 0 && S_ISFIFO(status.st_mode) &&
               lstat(at("link"), &status) == 0 && S_ISLNK(status.st_mode),
           "they are still there");

    snprintf(temporary, sizeof temporary, "%s.tmp.%ld", at("new"),
             (long)getpid());
    tap_is_int(fsio_write_atomic(at("victim"), "kept", 4), ERR_OK, "a file");
    tap_ok(symlink("victim", temporary) == 0, "that a temporary links to");
    tap_is_int(fsio_write_atomic(at("new"), "a", 1), ERR_OK, "write");
    tap_ok(holds(at("new"), "a") && holds(at("victim"), "kept"),
           "the link was not followed");
    tap_ok(lstat(temporary, &status) == 0, "and not removed");
    fails(fsio_write_atomic("/proc/tessera", "a", 1), ERR_SPACE,
          "/proc/tessera", "write where no files are made");
    fails(fsio_write_new(at("dangling"), "a", 1, true), ERR_IO, "dangling",
          "a new file is none where a link is");
    tap_ok(!fsio_exists(at("nowhere")), "nor where it leads to");
    unlink(temporary);
    unlink(at("fifo"));
    unlink(at("link"));
    unlink(at("dangling"));
}

static void test_transfers(void)
{
    const char *path = at("blocks");
    char data[16] = "";
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!tap_ok(fd >= 0, "create a file"))
        return;
    tap_is_int(fsio_pwrite(fd, "abcdef", 6, 0, path), ERR_OK, "write");
    tap_is_int(fsio_pwrite(fd, "XY", 2, 2, path), ERR_OK, "write inside");
    tap_is_int(fsio_pread(fd, data, 4, 1, path), ERR_OK, "read inside");
    tap_is_str(data, "bXYe", "the bytes at that offset");
    tap_is_int(fsio_pread(fd, data, 0, 100, path), ERR_OK, "read nothing");
    fails(fsio_pread(fd, data, 5, 2, path), ERR_DATA, path,
          "read over the end");
    tap_ok(strstr(err_text(), "truncated") != NULL, "truncated is told");
    close(fd);

    fd = open(path, O_RDONLY | O_CLOEXEC);
    fails(fsio_pwrite(fd, "a", 1, 0, path), ERR_IO, path,
          "write to a file open for reading");
    close(fd);
    fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        tap_skip("a full disk: this system has no /dev/full");
        return;
    }
    fails(fsio_pwrite(fd, "a", 1, 0, "/dev/full"), ERR_FULL, "/dev/full",
          "write to a full disk");
    close(fd);
}

static void test_folders(void)
{
    tap_is_int(fsio_mkdirs(at("a/b//c/")), ERR_OK, "make nested folders");
    tap_ok(fsio_exists(at("a/b/c")), "they exist");
    tap_is_int(fsio_mkdirs(at("a/b/c")), ERR_OK, "again is fine");
    tap_is_int(fsio_mkdirs("/"), ERR_OK, "the root is there");
    fails(fsio_mkdirs(at("file")), ERR_SPACE, "file", "a file in the place");
    fails(fsio_mkdirs(at("file/x/y")), ERR_SPACE, "file", "a file in the way");
    tap_ok(symlink("nowhere", at("lost")) == 0, "a link to nothing");
    fails(fsio_mkdirs(at("lost")), ERR_USAGE, "nowhere",
          "a link to nothing in the place");
    fails(fsio_mkdirs("/proc/tessera/x"), ERR_USAGE, "/proc/tessera",
          "a place where no folders are made");
    unlink(at("lost"));
    char first[FSIO_PATH_MAX], second[FSIO_PATH_MAX];
    tap_ok(fsio_mkdir_new(at("a/fresh"), first) == ERR_OK &&
               fsio_mkdir_new(at("a/fresh"), second) == ERR_OK &&
               strcmp(first, second) != 0 && fsio_exists(first) &&
               fsio_exists(second),
           "two new folders by one name");
    tap_is_int(fsio_fsync_dir(at("a")), ERR_OK, "sync a folder");
    fails(fsio_fsync_dir(at("none")), ERR_IO, "none", "sync a missing folder");
    fails(fsio_fsync_dir(at("file")), ERR_SPACE, "file", "sync a file");
    tap_ok(fsio_exists(at("file")) && !fsio_exists(at("none")) &&
               !fsio_exists(at("file/none")),
           "exists tells what is there");

    uint64_t bytes = 0;
    tap_is_int(fsio_free_bytes(folder, &bytes), ERR_OK, "free space");
    fails(fsio_free_bytes(at("none"), &bytes), ERR_IO, "none",
          "free space of a missing path");
}

static void test_remove(void)
{
    enum err rc = ERR_OK;
    TRY_OUT(fsio_mkdirs(at("tree/a/b")));
    TRY_OUT(fsio_mkdirs(at("other")));
    TRY_OUT(fsio_write_atomic(at("tree/a/b/f"), "x", 1));
    TRY_OUT(fsio_write_atomic(at("tree/g"), "x", 1));
    TRY_OUT(fsio_write_atomic(at("other/kept"), "x", 1));
    if (symlink("../../other", at("tree/a/folder")) != 0 ||
        symlink("nowhere", at("tree/a/dangling")) != 0 ||
        symlink("other", at("link")) != 0)
        rc = err_errno("symlink");
out:
    if (!tap_is_int(rc, ERR_OK, "make a tree"))
        return;
    tap_is_int(fsio_remove_tree(at("tree")), ERR_OK, "remove a tree");
    tap_ok(!fsio_exists(at("tree")), "it is gone");
    tap_is_int(fsio_remove_tree(at("link")), ERR_OK, "remove a link");
    tap_ok(!fsio_exists(at("link")), "the link is gone");
    tap_ok(fsio_exists(at("other/kept")), "links are not followed");
    tap_is_int(fsio_remove_tree(at("tree")), ERR_OK, "a missing path is fine");
    tap_is_int(fsio_remove_tree(at("other/kept/x")), ERR_OK,
               "so is one below a file");
    tap_is_int(fsio_remove_tree(at("other/kept")), ERR_OK, "remove a file");
    tap_ok(!fsio_exists(at("other/kept")), "the file is gone");
    if (access("/proc/self/status", F_OK) == 0)
        fails(fsio_remove_tree("/proc/self/status"), ERR_SPACE,
              "/proc/self/status", "what cannot be removed");
    else
        tap_skip("what cannot be removed: this system has no /proc");
}

static void test_relative(void)
{
    static const struct {
        const char *folder, *path, *way;
    } rows[] = {
        { "/a/b", "/a/c", "../c" },
        { "/a/b", "/a/b/c", "c" },
        { "/a/b", "/a/b", "." },
        { "/a/b", "/a/bc/d", "../bc/d" },
        { "/a/bc", "/a/b", "../b" },
        { "/a/b/c", "/a", "../../" },
        { "/a/b", "/x/y", "../../x/y" },
        { "/", "/x", "x" },
        { "/a", "/", "../" },
        { "/", "/", "." },
    };
    char way[FSIO_PATH_MAX], folder_of_many[FSIO_PATH_MAX] = "";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tap_is_int(fsio_relative(rows[i].folder, rows[i].path, way), ERR_OK,
                   "a way");
        tap_is_str(way, rows[i].way, "from %s to %s", rows[i].folder,
                   rows[i].path);
    }
    for (int i = 0; i + 2 < FSIO_PATH_MAX; i += 2)
        memcpy(folder_of_many + i, "/f", 3);
    fails(fsio_relative(folder_of_many, "/x", way), ERR_USAGE, "too long",
          "a way of too many steps");
}

int main(void)
{
    folder = tap_folder();
    test_path();
    test_relative();
    test_write_read();
    test_read_failures();
    test_write_failures();
    test_strangers();
    test_transfers();
    test_folders();
    test_remove();
    return tap_done();
}
