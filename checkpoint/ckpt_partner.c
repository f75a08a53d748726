#include "checkpoint/ckpt_partner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/fsio.h"

#define TAG 1

struct mapping {
    int rank; /* the peer */
    void *data;
    size_t bytes;
    struct comm_request *request; /* NULL: not started, or waited for */
};

struct ckpt_partner {
    struct comm *comm;
    int *keepers; /* [size] */
    struct mapping own;
    struct mapping *kept; /* [size], kept_count of them in use */
    int kept_count;
};

/* --- who keeps for whom --------------------------------------------------- */

static bool same_node(const struct comm *comm, int a, int b)
{
    return strcmp(comm_host(comm, a), comm_host(comm, b)) == 0;
}

/* Number every node by its lowest rank, and every rank within its node. */
static int number_nodes(const struct comm *comm, int *node, int *place)
{
    int nodes = 0;
    for (int r = 0; r < comm_size(comm); r++) {
        node[r] = nodes;
        place[r] = 0;
        for (int before = 0; before < r; before++)
            if (same_node(comm, before, r)) {
                node[r] = node[before];
                place[r]++;
            }
        if (place[r] == 0)
            nodes++;
    }
    return nodes;
}

static int rank_at(const int *node, const int *place, int size, int on, int at)
{
    int count = 0;
    for (int r = 0; r < size; r++)
        count += node[r] == on;
    for (int r = 0; r < size; r++)
        if (node[r] == on && place[r] == at % count)
            return r;
    return -1;
}

static enum err find_keepers(struct ckpt_partner *partner)
{
    size_t size = (size_t)comm_size(partner->comm);
    int *numbers = calloc(2 * size, sizeof *numbers);
    if (numbers == NULL)
        return err_set(ERR_MEMORY, "node-local copies: out of memory");
    int *node = numbers, *place = numbers + size;
    int nodes = number_nodes(partner->comm, node, place);
    for (size_t r = 0; r < size; r++)
        partner->keepers[r] = nodes < 2
                                  ? -1
                                  : rank_at(node, place, (int)size,
                                            (node[r] + 1) % nodes, place[r]);
    free(numbers);
    return ERR_OK;
}

enum err ckpt_partner_create(struct comm *comm, struct ckpt_partner **out)
{
    enum err rc = ERR_OK;
    size_t size = (size_t)comm_size(comm);
    struct ckpt_partner *partner = calloc(1, sizeof *partner);
    *out = NULL;
    if (partner != NULL) {
        partner->comm = comm;
        partner->keepers = calloc(size, sizeof *partner->keepers);
        partner->kept = calloc(size, sizeof *partner->kept);
    }
    if (partner == NULL || partner->keepers == NULL || partner->kept == NULL) {
        rc = err_set(ERR_MEMORY, "node-local copies: out of memory");
        goto out;
    }
    TRY(find_keepers(partner));
    *out = partner;
    partner = NULL;
out:
    ckpt_partner_destroy(partner);
    return rc;
}

void ckpt_partner_destroy(struct ckpt_partner *partner)
{
    if (partner == NULL)
        return;
    assert(partner->own.request == NULL && partner->own.data == NULL);
    assert(partner->kept_count == 0);
    free(partner->kept);
    free(partner->keepers);
    free(partner);
}

int ckpt_partner_keeper(const struct ckpt_partner *partner, int rank)
{
    assert(rank >= 0 && rank < comm_size(partner->comm));
    return partner->keepers[rank];
}

bool ckpt_partner_leads(const struct ckpt_partner *partner)
{
    int rank = comm_rank(partner->comm);
    for (int r = 0; r < rank; r++)
        if (same_node(partner->comm, r, rank))
            return false;
    return true;
}

/* --- transfers ------------------------------------------------------------ */

/* Where there are very many shards they are in folders of their own. */
static enum err make_parent(const char *path)
{
    enum err rc = ERR_OK;
    char parent[FSIO_PATH_MAX];
    TRY(fsio_path(parent, "%s", path));
    *strrchr(parent, '/') = '\0';
    TRY(fsio_mkdirs(parent));
out:
    return rc;
}

/* Writing to a mapping that the file system can't back would be SIGBUS, so its
 * space is reserved first. */
static enum err map_file(const struct ckpt_partner_file *file, bool make,
                         struct mapping *mapping)
{
    enum err rc = ERR_OK;
    int failed = 0;
    int fd = -1;
    if (make)
        TRY(make_parent(file->path));
    fd = make ? open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
              : open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno("%s: open", file->path);
    if (make)
        failed = posix_fallocate(fd, 0, (off_t)file->bytes);
    if (failed != 0) {
        errno = failed;
        rc = err_errno("%s: reserve %lld bytes", file->path,
                       (long long)file->bytes);
        goto out;
    }
    void *data =
        mmap(NULL, (size_t)file->bytes,
             make ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        rc = err_errno("%s: map", file->path);
        goto out;
    }
    *mapping = (struct mapping){ .rank = file->rank,
                                 .data = data,
                                 .bytes = (size_t)file->bytes };
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

enum err ckpt_partner_prepare(struct ckpt_partner *partner,
                              const struct ckpt_partner_file *own,
                              const struct ckpt_partner_file *kept,
                              int kept_count)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(partner->comm);
    assert(partner->own.data == NULL && partner->kept_count == 0);
    if (own != NULL && partner->keepers[rank] >= 0)
        TRY(map_file(own, false, &partner->own));
    for (int i = 0; i < kept_count; i++) {
        assert(partner->keepers[kept[i].rank] == rank);
        TRY(map_file(&kept[i], true, &partner->kept[i]));
        partner->kept_count++;
    }
out:
    return rc;
}

enum err ckpt_partner_start(struct ckpt_partner *partner)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(partner->comm);
    for (int i = 0; i < partner->kept_count; i++) {
        struct mapping *kept = &partner->kept[i];
        TRY(comm_start_recv(partner->comm, kept->data, kept->bytes, kept->rank,
                            TAG, &kept->request));
    }
    if (partner->own.data != NULL)
        TRY(comm_start_send(partner->comm, partner->own.data,
                            partner->own.bytes, partner->keepers[rank], TAG,
                            &partner->own.request));
out:
    return rc;
}

static bool mapping_done(const struct mapping *mapping)
{
    return mapping->request == NULL || comm_test(mapping->request);
}

bool ckpt_partner_test(struct ckpt_partner *partner)
{
    bool done = mapping_done(&partner->own);
    for (int i = 0; i < partner->kept_count; i++)
        done &= mapping_done(&partner->kept[i]);
    return done;
}

/* A late peer may still write to the memory of a transfer that met its
 * deadline: such a mapping stays until the process ends. */
static enum err mapping_finish(struct mapping *mapping)
{
    enum err rc = ERR_OK;
    if (mapping->request != NULL)
        rc = comm_wait(mapping->request, 0);
    if (mapping->data != NULL && rc == ERR_OK)
        munmap(mapping->data, mapping->bytes);
    *mapping = (struct mapping){ 0 };
    return rc;
}

enum err ckpt_partner_finish(struct ckpt_partner *partner)
{
    enum err rc = mapping_finish(&partner->own);
    for (int i = 0; i < partner->kept_count; i++) {
        enum err one = mapping_finish(&partner->kept[i]);
        rc = rc == ERR_OK ? one : rc;
    }
    partner->kept_count = 0;
    return rc;
}
