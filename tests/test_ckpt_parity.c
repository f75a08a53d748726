/* Parity files: what is XORed with what, that any one shard comes back from the
 * others, and that no byte of a file can change unseen. */
#include <fcntl.h>

#include "checkpoint/local/ckpt_parity.h"
#include "tests/ckpt_fixture.h"

#define MEMBERS_MAX 5
#define BYTES_MAX 64
#define MANIFEST_CRC 0x1234u
#define STEP 7

/* A manifest is of interest for the sizes of its shards only. */
struct world {
    struct ckpt_shard shards[MEMBERS_MAX];
    struct ckpt_manifest manifest;
    struct ckpt_parity parity;
    char data[MEMBERS_MAX][BYTES_MAX];
    char parities[MEMBERS_MAX][BYTES_MAX];
};

static void make_world(struct world *world, int members, const int *sizes)
{
    *world = (struct world){ 0 };
    world->parity = (struct ckpt_parity){
        .step = STEP, .manifest_crc = MANIFEST_CRC, .set = 3, .members = members
    };
    for (int m = 0; m < members; m++) {
        int shard = sizes[m] > 0 ? world->manifest.shard_count++ : -1;
        world->parity.shards[m] = shard;
        if (shard >= 0)
            world->shards[shard].bytes = sizes[m];
        for (int i = 0; i < sizes[m]; i++)
            world->data[m][i] = (char)fixture_value(m, 0, i);
    }
    world->manifest.step = STEP;
    world->manifest.shards = world->shards;
    world->parity.bytes =
        ckpt_parity_chunk_bytes(&world->parity, &world->manifest);
}

/* The chunk of `of` for `to`, filled up with zeros, goes into `out`. */
static void add(const struct world *world, const int *sizes, int of, int to,
                char *out)
{
    int64_t bytes = world->parity.bytes;
    int64_t offset = ckpt_parity_chunk(&world->parity, of, to) * bytes;
    ckpt_parity_xor(out, world->data[of] + offset,
                    ckpt_parity_inside(sizes[of], offset, bytes));
}

static bool comes_back(const struct world *world, const int *sizes, int lost)
{
    int members = world->parity.members;
    int64_t bytes = world->parity.bytes;
    char again[MEMBERS_MAX * BYTES_MAX] = { 0 };
    for (int c = 0; c < members - 1; c++) {
        int keeper = (lost + 1 + c) % members;
        char *out = again + c * bytes;
        if (ckpt_parity_chunk(&world->parity, lost, keeper) != c)
            return false;
        ckpt_parity_xor(out, world->parities[keeper], bytes);
        for (int m = 0; m < members; m++)
            if (m != lost && m != keeper)
                add(world, sizes, m, keeper, out);
    }
    return memcmp(again, world->data[lost], (size_t)sizes[lost]) == 0;
}

static void test_chunks(void)
{
    static const struct {
        int members;
        int sizes[MEMBERS_MAX];
        int chunk;
    } cases[] = {
        { 2, { 10, 10 }, 10 },           { 2, { 0, 7 }, 7 },
        { 3, { 10, 10, 10 }, 5 },        { 3, { 1, 64, 33 }, 32 },
        { 4, { 61, 62, 63, 64 }, 22 },   { 4, { 1, 0, 0, 0 }, 1 },
        { 5, { 64, 1, 17, 0, 33 }, 16 }, { 5, { 63, 63, 2, 5, 9 }, 16 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world world;
        int members = cases[i].members;
        bool good = true;
        make_world(&world, members, cases[i].sizes);
        tap_is_int(world.parity.bytes, cases[i].chunk, "case %zu: chunk", i);
        for (int to = 0; to < members; to++)
            for (int of = 0; of < members; of++)
                if (of != to)
                    add(&world, cases[i].sizes, of, to, world.parities[to]);
        for (int lost = 0; lost < members; lost++)
            good = good && comes_back(&world, cases[i].sizes, lost);
        tap_ok(good, "case %zu: any of %d shards comes back", i, members);
    }
}

static enum err read_back(const struct world *world, const char *path,
                          uint32_t manifest_crc, struct ckpt_parity *out)
{
    return ckpt_parity_read(path, &world->manifest, manifest_crc, true, out);
}

/* One byte of the file is another while it is read. */
static bool notices(const struct world *world, const char *path, int fd,
                    const char *file, size_t at)
{
    struct ckpt_parity parity;
    bool seen = true;
    for (int bit = 0; bit < 8; bit += 7) {
        char byte = (char)(file[at] ^ (1 << bit));
        seen =
            pwrite(fd, &byte, 1, (off_t)at) == 1 &&
            read_back(world, path, MANIFEST_CRC, &parity) == ERR_CHECKPOINT &&
            seen;
    }
    return pwrite(fd, file + at, 1, (off_t)at) == 1 && seen;
}

static void test_file(const char *folder)
{
    static const int sizes[] = { 61, 0, 40 };
    struct world world;
    struct ckpt_parity parity;
    char path[FSIO_PATH_MAX];
    make_world(&world, 3, sizes);
    world.parity.member = 1;
    int64_t offset = ckpt_parity_offset(&world.parity);
    size_t bytes = (size_t)(offset + world.parity.bytes);
    char *file = calloc(1, bytes + 1);
    memcpy(file + offset, world.data[0], (size_t)world.parity.bytes);
    ckpt_parity_seal(&world.parity, file);
    tap_ok(ckpt_parity_path(path, folder, &world.parity) == ERR_OK &&
               fsio_write_atomic(path, file, bytes) == ERR_OK &&
               read_back(&world, path, MANIFEST_CRC, &parity) == ERR_OK,
           "a file that was sealed is read: %s", err_text());
    tap_ok(strstr(path, "/parity-00003-01") != NULL, "its name");
    tap_ok(parity.set == 3 && parity.member == 1 && parity.members == 3 &&
               parity.step == STEP && parity.bytes == world.parity.bytes &&
               memcmp(parity.shards, world.parity.shards,
                      sizeof parity.shards) == 0,
           "and says what it is");
    tap_ok(read_back(&world, path, MANIFEST_CRC + 1, &parity) == ERR_CHECKPOINT,
           "not with another manifest");
    world.shards[0].bytes += 3;
    tap_ok(read_back(&world, path, MANIFEST_CRC, &parity) == ERR_CHECKPOINT,
           "nor with shards of another size");
    world.shards[0].bytes -= 3;
    size_t unseen = 0;
    int fd = open(path, O_RDWR);
    for (size_t at = 0; at < bytes; at++)
        unseen += !notices(&world, path, fd, file, at);
    close(fd);
    tap_is_int((long long)unseen, 0, "no byte can change unseen");
    unseen = 0;
    for (size_t end = 0; end < bytes; end += 97)
        unseen +=
            fsio_write_atomic(path, file, end) != ERR_OK ||
            read_back(&world, path, MANIFEST_CRC, &parity) != ERR_CHECKPOINT;
    unseen += fsio_write_atomic(path, file, bytes + 1) != ERR_OK ||
              read_back(&world, path, MANIFEST_CRC, &parity) != ERR_CHECKPOINT;
    tap_is_int((long long)unseen, 0, "nor can it be shorter or longer");
    free(file);
}

int main(void)
{
    char folder[FSIO_PATH_MAX];
    test_chunks();
    if (!tap_ok(fsio_path(folder, "%s", tap_folder()) == ERR_OK, "a folder"))
        return tap_done();
    test_file(folder);
    return tap_done();
}
